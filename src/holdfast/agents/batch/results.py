"""What came of each task of a batch, and of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

Ending = Literal["passed", "not passed", "failed", "cancelled", "stuck"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one task."""

    line: int
    title: str
    run_id: str
    ending: Ending
    summary: str
    """Its verdict or its error, in one line."""
    attempts: int
    seconds: float
    tokens: int
    usd: Decimal | None
    """None if a price is unknown."""
    again: bool
    """Whether it had ended before this batch was begun: nothing was done for it now."""
    value: Any = None
    """What the run returned, as JSON."""

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "task": self.title,
            "run": self.run_id,
            "result": self.ending,
            "passed": self.ending == "passed",
            "summary": self.summary,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "tokens": self.tokens,
            "usd": None if self.usd is None else str(self.usd),
            "ended_before": self.again,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """All results of a batch together."""

    tasks: int
    passed: int
    not_passed: int
    failed: int
    """Ended without a result."""
    open: int
    """Not ended yet, or not begun."""
    again: int
    tokens: int
    usd: Decimal
    """Of those whose price is known."""
    unpriced: int
    """Tasks with a price that is not."""
    busy: float
    """Seconds of all runs, whether or not at once."""

    def as_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "passed": self.passed,
            "not_passed": self.not_passed,
            "failed": self.failed,
            "open": self.open,
            "ended_before": self.again,
            "tokens": self.tokens,
            "usd": str(self.usd),
            "unpriced": self.unpriced,
            "busy_seconds": round(self.busy, 3),
        }


def totals(results: Sequence[Result], tasks: int) -> Totals:
    """The totals over what has ended, of so many tasks."""
    endings = [result.ending for result in results]
    known = [result.usd for result in results if result.usd is not None]
    return Totals(
        tasks=tasks,
        passed=endings.count("passed"),
        not_passed=endings.count("not passed"),
        failed=sum(ending not in ("passed", "not passed") for ending in endings),
        open=tasks - len(results),
        again=sum(result.again for result in results),
        tokens=sum(result.tokens for result in results),
        usd=sum(known, Decimal(0)),
        unpriced=len(results) - len(known),
        busy=sum(result.seconds for result in results),
    )
