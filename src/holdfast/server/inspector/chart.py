"""The chart of spend over time: stacked bars, an axis of round amounts. Pure arithmetic.

Places are percentages of the drawing, from its upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.server.inspector.text_format import NANO, money
from holdfast.store.inspection import Slice

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
