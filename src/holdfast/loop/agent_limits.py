"""The bounds of one run of an agent: its budget and its wall time.

The budget is a limit of its own in the gateway's ledger, which reserves the worst case before each
call and refuses one that could pass the limit; sub-agents' calls count too. It holds across
crashes, since it is kept where the spend is. Wall time stands still while people are waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from types import TracebackType

from holdfast.errors import UsageError
from holdfast.gateway.calls import default_gateway
from holdfast.records.calls import NANO, SpendLimit
from holdfast.runtime.context import uuid4
from holdfast.runtime.definitions import step

Amount = Decimal | int | float | str


def dollars(amount: Amount | None) -> Decimal | None:
    """The budget as an exact number of US dollars; raises UsageError."""
    if amount is None:
        return None
    try:
        exact = Decimal(str(amount))
    except InvalidOperation:
        raise UsageError(
            f"{amount!r} is not a valid amount", hint='budget="0.50" is half a dollar'
        ) from None
    if not exact.is_finite() or exact < 0:
        raise UsageError(f"{amount!r} is not a valid budget", hint="0 or more US dollars")
    return exact


async def limit_spend(budget: Decimal | None) -> tuple[str, ...]:
    """Set up a limit; the tags whose calls spend no more than this together."""
    if budget is None:
        return ()
    tag = f"agent-{uuid4()}"
    await _set_budget(f"tag:{tag}", int((budget * NANO).to_integral_value(ROUND_FLOOR)))
    return (tag,)


@step(name="set the budget")
async def _set_budget(scope: str, nanodollars: int) -> None:
    await default_gateway().ledger.set_limit(SpendLimit(scope, nanodollars, None))


class WallTime:
    """A time limit around a block. Past it the block is cancelled and TimeoutError raised.

    Uses the running loop's time: in a workflow body that is the run's own, so that the limit is a
    durable timer and the same on every replay.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = 0.0
        self._waiting = 0
        self._limit: asyncio.Timeout | None = None

    @property
    def over(self) -> bool:
        """Whether the limit was reached."""
        return self._limit is not None and self._limit.expired()

    async def __aenter__(self) -> WallTime:
        self._since = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout(self._left)
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._limit is not None
        return await self._limit.__aexit__(kind, error, trace)

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Do not count the time spent in this block; several may be under way at once."""
        limit, loop = self._limit, asyncio.get_running_loop()
        assert limit is not None
        self._waiting += 1
        if self._waiting == 1:
            self._left -= loop.time() - self._since
            limit.reschedule(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not limit.expired():
                self._since = loop.time()
                limit.reschedule(self._since + max(self._left, 0.0))
