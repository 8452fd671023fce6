"""Which budgets a call counts against, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import ROUND_FLOOR
from functools import lru_cache

from holdfast.gateway.config import Budget
from holdfast.records.calls import NANO, CallStart, SpendLimit


def scopes_of(start: CallStart, budgets: Sequence[Budget]) -> list[str]:
    """Every scope the call counts against: `day:…`, `run:…`, `workflow:…`, `tag:…`, `key:…`."""
    day = _date(int(start.started_at // 86400))
    scopes = [f"day:{day}"]
    if not (start.run_id or start.workflow or start.tags or start.api_key):
        return scopes
    for kind, name in _named(start):
        scopes.append(f"{kind}:{name}")
        if any(b.per == kind and b.period == "day" and b.name in (None, name) for b in budgets):
            scopes.append(f"{kind}:{name}@{day}")
    return scopes


def limits_of(scopes: Sequence[str], budgets: Sequence[Budget]) -> list[SpendLimit]:
    """The configured limits on these scopes."""
    found: list[SpendLimit] = []
    for budget in budgets:
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, dated, _ = rest.partition("@")
            daily = bool(dated) == (budget.period == "day") or kind == "day"
            if kind == budget.per and daily and budget.name in (None, name):
                usd = None
                if budget.usd is not None:
                    usd = int((budget.usd * NANO).to_integral_value(ROUND_FLOOR))
                found.append(SpendLimit(scope, usd, budget.tokens))
    return found


@lru_cache(2)
def _date(days: int) -> str:
    """The date so many days after 1970 began, in UTC."""
    return (date(1970, 1, 1) + timedelta(days)).isoformat()


def _named(start: CallStart) -> list[tuple[str, str]]:
    named: list[tuple[str, str]] = []
    if start.run_id:
        named.append(("run", start.run_id))
    if start.workflow:
        named.append(("workflow", start.workflow))
    named.extend(("tag", tag) for tag in start.tags)
    if start.api_key:
        named.append(("key", start.api_key))
    return named
