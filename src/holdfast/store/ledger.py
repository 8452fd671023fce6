"""The contract of the ledger: model calls, what they spend, limits, rates, virtual keys, and what
is kept by name for a while.

Every call is committed as `started`, with its worst case held against its budgets, before its
first byte is sent; and once more when it ends. Limits hold across processes, and calls of a
process that died are found and settled by the others. What a call costs and which scopes it counts
against is the gateway's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, Protocol

from holdfast.records.calls import NANO, Call, CallEnd, CallStart, Spend, SpendLimit, VirtualKey

KEPT_SECONDS = 86400.0
"""How long the sealed reply of a call with a key is kept, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The call is on record and may be sent."""

    limited: bool
    """Whether any limit applies, so that the output must be capped."""
    scopes: Sequence[str] = ()
    """Where it is held."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A call with the same key and request is on record already."""

    call: Call
    replay: bytes | None
    """Its sealed reply, if it completed and is still kept."""


@dataclass(frozen=True, slots=True)
class CallTotals:
    """What model calls came to: the one sum of tokens and money, made by the store.

    `cost` is in nanodollars; what a call of unknown price cost is not in it.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    """Of the input: read from the provider's cache."""
    output_tokens: int = 0
    cost: int = 0
    unpriced: int = 0
    """Ended calls whose price is unknown."""
    open: int = 0
    """Calls in progress: their tokens and cost are not in it yet."""
    model: str = ""
    """One of those that were asked."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def usd(self) -> Decimal | None:
        """The cost in US dollars; None if the price of a call is unknown."""
        return None if self.unpriced else Decimal(self.cost) / NANO

    @property
    def is_complete(self) -> bool:
        """Whether the cost is that of every call, and not a lower bound."""
        return not (self.unpriced or self.open)

    def __add__(self, other: CallTotals) -> CallTotals:
        return CallTotals(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
            self.open + other.open,
            self.model or other.model,
        )


class Rate(NamedTuple):
    """So much of a bucket of `per_minute` units."""

    name: str
    per_minute: int
    amount: float


class Ledger(Protocol):
    """Calls, spend and keys. A call is held against its budgets from `begin` to `finish`."""

    @property
    def owner(self) -> str: ...

    async def begin(
        self,
        start: CallStart,
        *,
        scopes: Sequence[str],
        limits: Sequence[SpendLimit] = (),
        usd: int | None,
        tokens: int,
        durable: bool = True,
        wait: float = 0.0,
    ) -> Begun | Earlier: ...

    async def hold(
        self,
        call_id: str,
        *,
        limits: Sequence[SpendLimit] = (),
        usd: int | None,
        tokens: int,
        keep: tuple[int, int] = (0, 0),
        wait: float = 0.0,
    ) -> None: ...

    async def finish(self, call_id: str, end: CallEnd, *, durable: bool = True) -> None: ...
    def finish_soon(self, call_id: str, end: CallEnd) -> Future[Sequence[str]]: ...
    async def restore(self, call: Call) -> None:
        """Keep a call of another store that has ended; it counts against no budget of this one."""
        ...

    async def recover(self) -> list[Call]: ...
    async def supersede(self, call_id: str, *, release: bool = False) -> None: ...
    async def call(self, call_id: str) -> Call | None: ...

    async def calls(
        self, *, run_id: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[Call]: ...

    async def totals(self, run_ids: Sequence[str]) -> CallTotals:
        """What all model calls of these runs came to, however many they are."""
        ...

    async def take_turn(self, rates: Sequence[Rate]) -> float: ...
    def give_back(self, rates: Sequence[Rate]) -> None: ...
    async def spend(self, scope: str) -> Spend: ...
    async def set_limit(self, limit: SpendLimit) -> None: ...
    async def link(self, child: str, parent: str) -> None: ...
    async def add_key(self, key: VirtualKey) -> None: ...
    async def find_key(self, hash: str) -> VirtualKey | None: ...
    async def keys(self) -> list[VirtualKey]: ...
    async def revoke_key(self, id: str, at: float) -> bool: ...

    async def keep(self, name: str, data: bytes, *, until: float, replace: bool = True) -> bool:
        """Keep data under a name until that time, for all processes.

        Without `replace` what is there already stays, and False says so: of many who keep the same
        name at once one is told True.
        """
        ...

    async def kept(self, name: str) -> bytes | None:
        """What is kept under a name; None if nothing is, or its time is over."""
        ...

    def close(self) -> None: ...
