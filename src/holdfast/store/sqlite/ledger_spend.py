"""Spend and limits per scope. Runs inside the ledger's transaction.

The rule that keeps a limit: spent + held + what the call may cost at worst <= limit, checked and
held in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import Decimal

from holdfast.errors import BudgetExceeded
from holdfast.records.calls import Spend, SpendLimit

NANO = Decimal(1_000_000_000)
_MAX_DEPTH = 64

_IN_USE = "SELECT EXISTS (SELECT 1 FROM spend_parents), EXISTS (SELECT 1 FROM spend_limits)"
_HOLD = """
INSERT INTO spend (scope, held_usd, held_tokens) VALUES (?, ?, ?)
ON CONFLICT (scope) DO UPDATE SET held_usd = held_usd + excluded.held_usd,
  held_tokens = held_tokens + excluded.held_tokens
"""
_SETTLE = """
UPDATE spend SET held_usd = held_usd - ?, held_tokens = held_tokens - ?,
  usd = usd + ?, tokens = tokens + ?, calls = calls + 1
WHERE scope = ?
"""


def in_use(connection: sqlite3.Connection) -> tuple[bool, bool]:
    """Whether any scope is part of another, and whether any has a stored limit: one question
    instead of two for each scope, where, as mostly, neither is so."""
    row = connection.execute(_IN_USE).fetchone()
    return bool(row[0]), bool(row[1])


def with_parents(connection: sqlite3.Connection, scopes: Sequence[str]) -> list[str]:
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
    connection: sqlite3.Connection, scopes: Sequence[str], given: Sequence[SpendLimit]
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
    connection: sqlite3.Connection, limits: Sequence[SpendLimit], usd: int | None, tokens: int
) -> bool:
    """Whether a call of this worst case fits into every limit."""
    try:
        check(connection, limits, usd, tokens)
    except BudgetExceeded:
        return False
    return True


def check(
    connection: sqlite3.Connection,
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


def hold(connection: sqlite3.Connection, scopes: Sequence[str], usd: int, tokens: int) -> None:
    for scope in scopes:
        connection.execute(_HOLD, (scope, usd, tokens))


def settle(
    connection: sqlite3.Connection,
    scopes: Sequence[str],
    held: tuple[int, int],
    spent: tuple[int, int],
) -> None:
    """Replace a call's hold (nanodollars, tokens) by what it spent."""
    for scope in scopes:
        connection.execute(_SETTLE, (*held, *spent, scope))


def read(connection: sqlite3.Connection, scope: str) -> Spend:
    row = connection.execute(
        "SELECT usd, tokens, calls, held_usd, held_tokens FROM spend WHERE scope = ?", (scope,)
    ).fetchone()
    limit = connection.execute(
        "SELECT usd, tokens FROM spend_limits WHERE scope = ?", (scope,)
    ).fetchone()
    found = None if limit is None else SpendLimit(scope, limit[0], limit[1])
    return Spend(scope, limit=found) if row is None else Spend(scope, *row, limit=found)


def set_limit(connection: sqlite3.Connection, limit: SpendLimit) -> None:
    if limit.usd is None and limit.tokens is None:
        connection.execute("DELETE FROM spend_limits WHERE scope = ?", (limit.scope,))
        return
    connection.execute(
        "INSERT INTO spend_limits (scope, usd, tokens) VALUES (?, ?, ?)"
        " ON CONFLICT (scope) DO UPDATE SET usd = excluded.usd, tokens = excluded.tokens",
        (limit.scope, limit.usd, limit.tokens),
    )


def link(connection: sqlite3.Connection, child: str, parent: str) -> None:
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
