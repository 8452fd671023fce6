"""The code agent's steps as lines: how long each took, its tokens, its cost, what came of it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

from holdfast.cli.output import duration, short
from holdfast.cli.view import SYMBOLS
from holdfast.records import Step
from holdfast.records.calls import NANO, Call

_MOST_CALLS = 1000


class Progress:
    """Draws the steps of one run, with what the ledger says of their model calls."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._calls: dict[str, list[Call]] = {}

    async def look(self) -> None:
        """Ask the ledger anew."""
        from holdfast.gateway import default_gateway  # not before the run's first step

        self._calls = {}
        for call in await default_gateway().ledger.calls(run_id=self._run_id, limit=_MOST_CALLS):
            self._calls.setdefault(call.start.step_key or "", []).append(call)

    def calls_of(self, step: Step) -> list[Call]:
        """The model calls of a step, as of the last look."""
        return self._calls.get(step.key, [])

    def line(self, step: Step, now: float, width: int) -> str | None:
        """A step on one line; None for one that is not worth a line."""
        took = step.seconds if step.seconds is not None else now - step.started_at
        if step.name == "prepare" and step.status == "completed" and took < 1:
            return None
        calls = self.calls_of(step)
        passed = _passed(step)
        symbol = SYMBOLS["failed" if passed is False else step.status]
        name = step.name.replace("_", " ")
        tokens, cost = tokens_of(calls), cost_of(calls)
        head = f" {symbol} {name:<16} {duration(took):>8}  {tokens:>6}  {cost:>7}"
        return f"{head}   {short(_outcome(step), max(width - len(head) - 4, 20))}".rstrip()


async def costs(run_id: str) -> str:
    """What a run's model calls came to: tokens and money."""
    from holdfast.gateway import default_gateway

    calls = await default_gateway().ledger.calls(run_id=run_id, limit=_MOST_CALLS)
    tokens = tokens_of(calls)
    return " · ".join(word for word in (tokens and f"{tokens} tokens", cost_of(calls)) if word)


def _passed(step: Step) -> bool | None:
    """The verdict of a step that ran tests."""
    found = _output(step).get("passed") if step.name == "run_tests" else None
    return found if isinstance(found, bool) else None


def _output(step: Step) -> dict[str, Any]:
    return _object(step.output)


def _object(raw: bytes | None) -> dict[str, Any]:
    found: Any = json.loads(raw) if raw else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _outcome(step: Step) -> str:
    words: list[str] = []
    attempt = _object(step.input).get("attempt", 1)
    if attempt > 1:
        words.append(f"attempt {attempt}")
    if step.attempts > 1:
        words.append(f"try {step.attempts}")
    if step.error is not None:
        words.append(str(step.error))
    found = _output(step)
    words += [str(found[name]) for name in ("summary", "problem") if found.get(name)]
    if found.get("disputes"):
        words.append(f"says the tests are wrong: {found['disputes']}")
    return "  ".join(words)


def tokens_of(calls: list[Call]) -> str:
    used = sum(c.end.input_tokens + c.end.output_tokens for c in calls if c.end is not None)
    return f"{used / 1000:.1f}k" if used else ""


def cost_of(calls: list[Call]) -> str:
    """In dollars; a price that is not known is said to be, never counted as nothing."""
    ended = [call.end for call in calls if call.end is not None]
    known = sum((Decimal(end.cost) / NANO for end in ended if end.cost is not None), Decimal(0))
    if any(end.cost is None for end in ended):
        return f"${known:.3f}+?" if known else "$?"
    return f"${known:.3f}" if ended else ""
