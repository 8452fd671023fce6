"""The page on models: what they cost, how they do, and what is left of the budgets."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from starlette.requests import Request

from holdfast.errors import UsageError
from holdfast.gateway.config import Budget, GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.records.calls import Spend
from holdfast.server import views
from holdfast.server.inspector.pages import Page, inspection
from holdfast.server.inspector.text_format import NANO, money
from holdfast.store.inspection import Slice, Sum, View
from holdfast.store.ledger import CallTotals

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
    lines = by_model(sums)
    chart = chart_of(slices, begin, now, width)
    context: dict[str, Any] = {
        "lines": lines,
        "all": in_all(sums),
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


def _line_json(line: ModelLine) -> dict[str, Any]:
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


# --- sums by model and provider, percentiles ---

GOOD = "completed"
UNDER_WAY = "started"


@dataclass
class ModelLine:
    """A model by one provider."""

    model: str
    provider: str
    totals: CallTotals = field(default_factory=CallTotals)
    errors: int = 0
    p50: float | None = None
    p95: float | None = None
    latencies: dict[float, int] = field(default_factory=dict[float, int], repr=False)


def by_model(sums: Sequence[Sum]) -> list[ModelLine]:
    """One line per model and provider, what cost most first."""
    lines: dict[tuple[str, str], ModelLine] = {}
    for each in sums:
        key = (each.model, each.provider)
        line = lines.setdefault(key, ModelLine(*key))
        _add(line, each)
    _give_errors_a_home(lines)
    for line in lines.values():
        line.p50, line.p95 = percentile(line.latencies, 0.5), percentile(line.latencies, 0.95)
    return sorted(
        lines.values(), key=lambda line: (-line.totals.cost, -line.totals.calls, line.model)
    )


def _give_errors_a_home(lines: dict[tuple[str, str], ModelLine]) -> None:
    """Calls that nobody answered count for the provider that the model's name asks for."""
    for model, provider in list(lines):
        home = lines.get((model, model.partition("/")[0]))
        if provider == "" and home is not None:
            lost = lines.pop((model, provider))
            home.totals += lost.totals
            home.errors += lost.errors


def in_all(sums: Sequence[Sum]) -> ModelLine:
    """All models together."""
    line = ModelLine("", "")
    for each in sums:
        _add(line, each)
    line.p50, line.p95 = percentile(line.latencies, 0.5), percentile(line.latencies, 0.95)
    return line


def _add(line: ModelLine, each: Sum) -> None:
    line.totals += each.totals
    if each.status == GOOD:
        line.latencies[each.latency] = line.latencies.get(each.latency, 0) + each.totals.calls
    elif each.status != UNDER_WAY:
        line.errors += each.totals.calls


def percentile(counts: dict[float, int], part: float) -> float | None:
    """The value that `part` of the counted values are not above; None of nothing."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = max(1, -(-int(total * part * 1000) // 1000))
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    raise AssertionError("unreachable: the counts add up to their total")


# --- the chart of spend over time: stacked bars, an axis of round amounts ---
# Places are percentages of the drawing, from its upper left corner.

SERIES = 6
"""Models with a shade of their own; the others are drawn together."""
OTHERS = "others"
GAP = 0.18
"""Of a slice's width: between two bars."""
WIDTHS = (300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000)
SLICES = 48


@dataclass(frozen=True)
class Bar:
    left: float
    top: float
    width: float
    height: float
    series: int
    label: str


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass
class Chart:
    """What is drawn, and the same as rows for those who can't see it."""

    bars: list[Bar] = field(default_factory=list[Bar])
    series: list[str] = field(default_factory=list[str])
    down: list[Tick] = field(default_factory=list[Tick])
    """The amounts, from the bottom up."""
    along: list[Tick] = field(default_factory=list[Tick])
    """The times."""
    rows: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])
    """Slice, model, calls, nanodollars."""
    total: int = 0


def slice_width(seconds: float) -> float:
    """The round width that divides a span into a readable number of slices."""
    return next((width for width in WIDTHS if seconds / width <= SLICES), WIDTHS[-1])


def slice_start(since: float, width: float) -> float:
    """The round moment at or before `since` at which a slice begins."""
    return since // width * width


def chart_of(slices: Sequence[Slice], begin: float, end: float, width: float) -> Chart:
    """The chart of what was spent from `begin` to `end`, in slices of `width` seconds."""
    count = max(1, int(-(-(end - begin) // width)))
    chart = Chart()
    by_model: dict[str, int] = {}
    for each in slices:
        by_model[each.model] = by_model.get(each.model, 0) + each.totals.cost
    ranked = sorted(by_model, key=lambda model: (-by_model[model], model))
    chart.series = ranked if len(ranked) <= SERIES else [*ranked[: SERIES - 1], OTHERS]
    series = {model: min(place, len(chart.series) - 1) for place, model in enumerate(ranked)}
    columns: dict[int, dict[int, int]] = {}
    for each in slices:
        column = columns.setdefault(min(each.index, count - 1), {})
        column[series[each.model]] = column.get(series[each.model], 0) + each.totals.cost
    top = _ceiling(max((sum(column.values()) for column in columns.values()), default=0))
    share = 100 / count
    for index, column in sorted(columns.items()):
        level = 100.0
        when = _moment(begin + index * width, width)
        for place, cost in sorted(column.items()):
            height = 100 * cost / top
            if not cost:
                continue
            level -= height
            label = f"{when}  {chart.series[place]}  {money(cost)}"
            left = share * (index + GAP / 2)
            chart.bars.append(
                Bar(
                    round(left, 3),
                    round(level, 3),
                    round(share * (1 - GAP), 3),
                    round(height, 3),
                    place,
                    label,
                )
            )
    chart.rows = [
        (
            _moment(begin + each.index * width, width),
            each.model,
            each.totals.calls,
            each.totals.cost,
        )
        for each in sorted(slices, key=lambda found: (found.index, found.model))
    ]
    chart.total = sum(each.totals.cost for each in slices)
    chart.down = [Tick(round(100 - 25 * part, 3), _amount(top * part // 4)) for part in range(5)]
    every = max(1, -(-count // 8))
    chart.along = [
        Tick(round(share * (index + 0.5), 3), _moment(begin + index * width, width))
        for index in range(0, count, every)
        if share * (index + 0.5) <= 97
    ]
    return chart


def _ceiling(most: int) -> int:
    """The round amount at the top of the axis, divisible by four."""
    if most <= 0:
        return NANO // 100
    power = 1
    while power * 10 < most:
        power *= 10
    for tenths in (10, 12, 16, 20, 30, 40, 60, 80, 100):
        if tenths * power >= most * 10:
            return max(tenths * power // 10, 4)
    raise AssertionError(most)


def _amount(nano: int) -> str:
    dollars = nano / NANO
    if dollars == 0:
        return "$0"
    digits = 4 if dollars < 0.01 else 3 if dollars < 0.1 else 2 if dollars < 10 else 0
    return f"${dollars:,.{digits}f}"


def _moment(at: float, width: float) -> str:
    found = datetime.fromtimestamp(at, UTC)
    at_midnight = found.hour == found.minute == 0
    return f"{found:%d %b}" if width >= 86400 or at_midnight else f"{found:%d %b %H:%M}"
