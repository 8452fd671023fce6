"""The page on models: what they cost, how they do, and what is left of the budgets."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from starlette.requests import Request

from holdfast.errors import UsageError
from holdfast.gateway.config import Budget, GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.records.calls import NANO, Spend
from holdfast.server import views
from holdfast.server.inspector import statistics
from holdfast.server.inspector.chart import chart_of, slice_start, slice_width
from holdfast.server.inspector.pages import Page, inspection
from holdfast.store.inspection import Slice, Sum, View

SPANS = {"1h": 3600.0, "24h": 86400.0, "7d": 604800.0, "30d": 2592000.0, "all": 0.0}
SCOPES = 5
"""Scopes shown for a budget that limits each of a kind."""


@dataclass(frozen=True)
class BudgetLine:
    """A limit, and how much of it is spent and held."""

    scope: str
    unit: str
    spent: int
    held: int
    limit: int
    source: str

    @property
    def part(self) -> float:
        """What is spent of it, in per cent."""
        return min(100.0, 100 * self.spent / self.limit) if self.limit else 100.0

    @property
    def held_part(self) -> float:
        return min(100.0 - self.part, 100 * self.held / self.limit) if self.limit else 0.0

    @property
    def state(self) -> str:
        if self.part >= 100:
            return "spent"
        return "nearly spent" if self.part >= 80 else "within"


async def models_page(request: Request) -> Page:
    """The page at /models."""
    now = time.time()
    span = request.query_params.get("since") or "24h"
    if span not in SPANS:
        raise UsageError(f"{span[:50]!r} is no span of time", hint=f"one of {', '.join(SPANS)}")
    budgets = _config(request).budgets

    def ask(
        view: View,
    ) -> tuple[list[Sum], list[Slice], float, float, list[BudgetLine], int]:
        first = view.first_call()
        since = now - SPANS[span] if span != "all" else (first or now)
        width = slice_width(now - since)
        begin = slice_start(since, width)
        return (
            view.call_sums(begin),
            view.calls_over_time(begin, width),
            begin,
            width,
            _budgets(view, budgets, now),
            view.log_end(),
        )

    sums, slices, begin, width, limits, log = await inspection(request).ask(ask)
    lines = statistics.by_model(sums)
    chart = chart_of(slices, begin, now, width)
    context: dict[str, Any] = {
        "lines": lines,
        "all": statistics.in_all(sums),
        "chart": chart,
        "budgets": limits,
        "each": [budget for budget in budgets if budget.per == "run" and budget.name is None],
        "span": span,
        "spans": SPANS,
        "log": log,
    }

    def as_json() -> dict[str, Any]:
        return {
            "since": begin,
            "models": [_line_json(line) for line in lines],
            "spend": [
                {
                    "at": begin + s.index * width,
                    "model": s.model,
                    "calls": s.totals.calls,
                    "cost_usd": views.dollars(s.totals.cost),
                }
                for s in slices
            ],
            "budgets": [
                {
                    "scope": line.scope,
                    "unit": line.unit,
                    "spent": line.spent,
                    "held": line.held,
                    "limit": line.limit,
                }
                for line in limits
            ],
        }

    return Page("models.html", "Models", "models", context, as_json, live="/api/events", every=30)


def _line_json(line: statistics.ModelLine) -> dict[str, Any]:
    return {
        "model": line.model,
        "provider": line.provider or None,
        "calls": line.totals.calls,
        "errors": line.errors,
        "input_tokens": line.totals.input_tokens,
        "cached_tokens": line.totals.cached_tokens,
        "output_tokens": line.totals.output_tokens,
        "cost_usd": views.dollars(line.totals.cost),
        "unpriced_calls": line.totals.unpriced,
        "p50_seconds": line.p50,
        "p95_seconds": line.p95,
    }


def _config(request: Request) -> GatewayConfig:
    gateway = cast("Gateway | None", request.app.state.gateway)
    return gateway.config if gateway is not None else GatewayConfig.load(os.environ)


def _budgets(view: View, budgets: Sequence[Budget], now: float) -> list[BudgetLine]:
    """The limits kept in the store, and those of the configuration."""
    lines: list[BudgetLine] = []
    for spend in view.limited_spend():
        assert spend.limit is not None
        lines += _lines(spend, spend.limit.usd, spend.limit.tokens, "set")
    for budget in budgets:
        usd = None if budget.usd is None else int(budget.usd * NANO)
        for spend in _scopes(view, budget, now):
            lines += _lines(spend, usd, budget.tokens, "configured")
    return sorted(lines, key=lambda line: (-line.part, line.scope))


def _lines(spend: Spend, usd: int | None, tokens: int | None, source: str) -> list[BudgetLine]:
    found: list[BudgetLine] = []
    if usd is not None:
        found.append(BudgetLine(spend.scope, "usd", spend.usd, spend.reserved_usd, usd, source))
    if tokens is not None:
        held = spend.reserved_tokens
        found.append(BudgetLine(spend.scope, "tokens", spend.tokens, held, tokens, source))
    return found


def _scopes(view: View, budget: Budget, now: float) -> list[Spend]:
    """The scopes a configured budget limits, as far as they are worth a line."""
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    dated = f"@{day}" if budget.period == "day" else ""
    if budget.per == "day":
        return [view.spent(f"day:{day}")]
    if budget.name is not None:
        return [view.spent(f"{budget.per}:{budget.name}{dated}")]
    if budget.per == "run":
        return []  # there may be any number of runs; the page names the limit
    most = view.spent_most(budget.per, 50)
    return [spend for spend in most if ("@" in spend.scope) == bool(dated)][:SCOPES]
