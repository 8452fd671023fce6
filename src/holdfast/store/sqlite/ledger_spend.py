"""Spend, limits, the calls that wait for room in them, and rates per minute.

The rule that keeps a limit: spent + held + what the call may cost at worst <= limit, checked and
held in one transaction, the ledger's, inside which everything here runs.

Calls that wait for room in a budget are served in the order they came, for all on the store. The
order is kept in the store; within a process only the first in line asks it, when a call has settled
or a moment has passed, and the others sleep until they are first (`Line`).

A rate is a bucket that refills steadily, and may go below empty: who takes from an empty one is
told how long to wait, and whoever comes after waits longer. A taking larger than the bucket counts
as a full one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from decimal import Decimal

from holdfast.errors import BudgetExceeded
from holdfast.records.calls import Spend, SpendLimit
from holdfast.store.connection import Connection
from holdfast.store.ledger import Rate

NANO = Decimal(1_000_000_000)
_MAX_DEPTH = 64

_IN_USE = "SELECT EXISTS (SELECT 1 FROM spend_parents), EXISTS (SELECT 1 FROM spend_limits)"
HOLD = """
INSERT INTO spend (scope, held_usd, held_tokens) VALUES (?, ?, ?)
ON CONFLICT (scope) DO UPDATE SET held_usd = spend.held_usd + excluded.held_usd,
  held_tokens = spend.held_tokens + excluded.held_tokens
"""
SETTLE = """
UPDATE spend SET held_usd = held_usd - ?, held_tokens = held_tokens - ?,
  usd = usd + ?, tokens = tokens + ?, calls = calls + 1
WHERE scope = ?
"""


def in_use(connection: Connection) -> tuple[bool, bool]:
    """Whether any scope is part of another, and whether any has a stored limit: one question
    instead of two for each scope, where, as mostly, neither is so."""
    row = connection.execute(_IN_USE).fetchone()
    return bool(row[0]), bool(row[1])


def with_parents(connection: Connection, scopes: Sequence[str]) -> list[str]:
    """The scopes and all they are part of, each once."""
    every = list(dict.fromkeys(scopes))
    for scope in every:  # grows while we walk it
        if len(every) > _MAX_DEPTH:
            break
        row = connection.execute(
            "SELECT parent FROM spend_parents WHERE child = ?", (scope,)
        ).fetchone()
        if row is not None and row[0] not in every:
            every.append(row[0])
    return every


def merged_limits(
    connection: Connection, scopes: Sequence[str], given: Sequence[SpendLimit]
) -> list[SpendLimit]:
    """The limits on these scopes, configured and stored; the tighter one counts."""
    found: dict[str, SpendLimit] = {}
    for limit in given:
        if limit.scope in scopes:
            found[limit.scope] = _tighter(found.get(limit.scope), limit)
    for scope in scopes:
        row = connection.execute(
            "SELECT usd, tokens FROM spend_limits WHERE scope = ?", (scope,)
        ).fetchone()
        if row is not None:
            found[scope] = _tighter(found.get(scope), SpendLimit(scope, row[0], row[1]))
    return list(found.values())


def _tighter(one: SpendLimit | None, other: SpendLimit) -> SpendLimit:
    if one is None:
        return other
    usd = [amount for amount in (one.usd, other.usd) if amount is not None]
    tokens = [amount for amount in (one.tokens, other.tokens) if amount is not None]
    return SpendLimit(other.scope, min(usd, default=None), min(tokens, default=None))


def fits(
    connection: Connection, limits: Sequence[SpendLimit], usd: int | None, tokens: int
) -> bool:
    """Whether a call of this worst case fits into every limit."""
    try:
        check(connection, limits, usd, tokens)
    except BudgetExceeded:
        return False
    return True


def check(
    connection: Connection,
    limits: Sequence[SpendLimit],
    usd: int | None,
    tokens: int,
    *,
    settled: bool = False,
) -> None:
    """Raise BudgetExceeded for the first limit that could be passed.

    With `settled` what calls in flight hold is not counted: what does not fit then never will.
    """
    for limit in limits:
        now = read(connection, limit.scope)
        held_usd, held_tokens = (0, 0) if settled else (now.reserved_usd, now.reserved_tokens)
        if limit.usd is not None:
            if usd is None:
                raise BudgetExceeded(
                    f"{limit.scope} has a budget in dollars, but the model's price is unknown",
                    hint="set its price in [gateway.prices], or limit tokens instead",
                    scope=limit.scope,
                    limit=_usd(limit.usd),
                )
            if now.usd + held_usd + usd > limit.usd:
                raise _over(limit.scope, "usd", (limit.usd, now.usd, now.reserved_usd, usd))
        if limit.tokens is not None and now.tokens + held_tokens + tokens > limit.tokens:
            raise _over(
                limit.scope, "tokens", (limit.tokens, now.tokens, now.reserved_tokens, tokens)
            )


def hold(connection: Connection, scopes: Sequence[str], usd: int, tokens: int) -> None:
    for scope in scopes:
        connection.execute(HOLD, (scope, usd, tokens))


def settle(
    connection: Connection,
    scopes: Sequence[str],
    held: tuple[int, int],
    spent: tuple[int, int],
) -> None:
    """Replace a call's hold (nanodollars, tokens) by what it spent."""
    for scope in scopes:
        connection.execute(SETTLE, (*held, *spent, scope))


def read(connection: Connection, scope: str) -> Spend:
    row = connection.execute(
        "SELECT usd, tokens, calls, held_usd, held_tokens FROM spend WHERE scope = ?", (scope,)
    ).fetchone()
    limit = connection.execute(
        "SELECT usd, tokens FROM spend_limits WHERE scope = ?", (scope,)
    ).fetchone()
    found = None if limit is None else SpendLimit(scope, limit[0], limit[1])
    return Spend(scope, limit=found) if row is None else Spend(scope, *row, limit=found)


def set_limit(connection: Connection, limit: SpendLimit) -> None:
    if limit.usd is None and limit.tokens is None:
        connection.execute("DELETE FROM spend_limits WHERE scope = ?", (limit.scope,))
        return
    connection.execute(
        "INSERT INTO spend_limits (scope, usd, tokens) VALUES (?, ?, ?)"
        " ON CONFLICT (scope) DO UPDATE SET usd = excluded.usd, tokens = excluded.tokens",
        (limit.scope, limit.usd, limit.tokens),
    )


def link(connection: Connection, child: str, parent: str) -> None:
    connection.execute(
        "INSERT INTO spend_parents (child, parent) VALUES (?, ?)"
        " ON CONFLICT (child) DO UPDATE SET parent = excluded.parent",
        (child, parent),
    )


def _over(scope: str, unit: str, amounts: tuple[int, int, int, int]) -> BudgetExceeded:
    """The error for a limit, what is spent and held of it, and what is needed."""
    limit, spent, held, needed = amounts
    if unit == "usd":
        shown = [f"${_usd(amount):f}" for amount in (limit, spent, held, needed)]
        values = [_usd(amount) for amount in (limit, spent, needed)]
    else:
        shown = [f"{amount:,} tokens" for amount in (limit, spent, held, needed)]
        values = [Decimal(amount) for amount in (limit, spent, needed)]
    return BudgetExceeded(
        f"{scope} may spend {shown[0]}: {shown[1]} is spent, {shown[2]} is held by calls in"
        f" flight, and this call could cost {shown[3]}",
        hint="raise the limit, set a smaller max_tokens, or wait longer for calls in flight",
        scope=scope,
        unit=unit,
        limit=values[0],
        spent=values[1],
        needed=values[2],
    )


def _usd(amount: int) -> Decimal:
    return Decimal(amount) / NANO


_FIRST = "SELECT min(number) FROM spend_queue WHERE scope = ?"
_JOIN = "INSERT INTO spend_queue (scope, number, call_id, owner) VALUES (?, ?, ?, ?)"


def is_turn(connection: Connection, scopes: Iterable[str], number: int | None) -> bool:
    """Whether nobody waits on these scopes before `number`; None: is not in line yet."""
    for scope in scopes:
        first = connection.execute(_FIRST, (scope,)).fetchone()[0]
        if first is not None and (number is None or first < number):
            return False
    return True


def join_queue(connection: Connection, scopes: Iterable[str], call_id: str, owner: str) -> int:
    """Stand in line at the end; returns the place's number."""
    row = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM spend_queue").fetchone()
    connection.executemany(_JOIN, [(scope, row[0], call_id, owner) for scope in scopes])
    return row[0]


def leave_queue(connection: Connection, call_id: str) -> None:
    connection.execute("DELETE FROM spend_queue WHERE call_id = ?", (call_id,))


def leave_all_queue(connection: Connection, owner: str) -> None:
    """Take everyone of a process that is gone out of the line."""
    connection.execute("DELETE FROM spend_queue WHERE owner = ?", (owner,))


class Waiter:
    """One caller in line."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes = scopes
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def wake(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def sleep(self, seconds: float) -> bool:
        """Until woken (True) or the time has passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Line:
    """This process's callers in line, by scope, in their order."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, waiter: Waiter) -> None:
        for scope in waiter.scopes:
            self._waiting.setdefault(scope, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        for scope in waiter.scopes:
            line = self._waiting[scope]
            line.remove(waiter)
            if not line:
                del self._waiting[scope]
        self.wake(waiter.scopes)

    def is_first(self, waiter: Waiter) -> bool:
        return all(self._waiting[scope][0] is waiter for scope in waiter.scopes)

    def wake(self, scopes: Iterable[str]) -> None:
        """Something settled on these scopes: whoever is first there looks again."""
        for scope in scopes:
            line = self._waiting.get(scope)
            if line:
                line[0].wake()


MINUTE = 60.0
_SET_RATE = """
INSERT INTO rates (name, level, at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET level = excluded.level, at = excluded.at
"""


def rate_taken(level: float, seconds: float, rate: Rate) -> tuple[float, float]:
    """The level after `seconds` and the taking, and how long to wait before using it."""
    size = float(rate.per_minute)
    level = min(size, level + max(seconds, 0.0) * size / MINUTE) - min(rate.amount, size)
    return level, max(0.0, -level * MINUTE / size)


def take_rates(connection: Connection, rates: Sequence[Rate], now: float) -> float:
    """Take from every bucket; returns the longest wait."""
    longest = 0.0
    for rate in rates:
        level, at = _read_rate(connection, rate, now)
        level, wait = rate_taken(level, now - at, rate)
        connection.execute(_SET_RATE, (rate.name, level, now))
        longest = max(longest, wait)
    return longest


def give_back_rates(connection: Connection, rates: Sequence[Rate], now: float) -> None:
    for rate in rates:
        level, at = _read_rate(connection, rate, now)
        connection.execute(_SET_RATE, (rate.name, min(rate.per_minute, level + rate.amount), at))


def _read_rate(connection: Connection, rate: Rate, now: float) -> tuple[float, float]:
    row = connection.execute("SELECT level, at FROM rates WHERE name = ?", (rate.name,)).fetchone()
    return (float(rate.per_minute), now) if row is None else row
