"""What models cost and how they do: sums by model and provider, percentiles, budgets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.store.inspection import Sum
from holdfast.store.ledger import CallTotals

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
