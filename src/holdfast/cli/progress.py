"""The code agent's steps as lines: how long each took, its tokens, its cost, what came of it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

from holdfast.cli.output import duration, short
from holdfast.cli.view import SYMBOLS
from holdfast.records import Step
from holdfast.records.calls import NANO
from holdfast.session import current_store
from holdfast.store.sqlite.activity import Spent, spent_by_step
from holdfast.store.sqlite.inspection import Inspection


class Progress:
    """Draws the steps of one run, with what the ledger says of their model calls."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._spent: dict[str, Spent] = {}

    async def look(self) -> None:
        """Ask the ledger anew."""
        self._spent = await spending(self._run_id)

    def spent_by(self, step: Step) -> Spent:
        """What a step spent on models, as of the last look."""
        return self._spent.get(step.key, Spent())

    def line(self, step: Step, now: float, width: int) -> str | None:
        """A step on one line; None for one that is not worth a line."""
        took = step.seconds if step.seconds is not None else now - step.started_at
        if step.name == "prepare" and step.status == "completed" and took < 1:
            return None
        spent = self.spent_by(step)
        passed = _passed(step)
        symbol = SYMBOLS["failed" if passed is False else step.status]
        name = step.name.replace("_", " ")
        tokens, cost = tokens_of(spent), cost_of(spent)
        head = f" {symbol} {name:<16} {duration(took):>8}  {tokens:>6}  {cost:>7}"
        return f"{head}   {short(_outcome(step), max(width - len(head) - 4, 20))}".rstrip()


async def spending(run_id: str) -> dict[str, Spent]:
    """What each step of a run spent on models, from the store this process works on."""
    inspection = Inspection(current_store())
    try:
        return await inspection.ask(lambda connection: spent_by_step(connection, run_id))
    finally:
        inspection.close()


async def costs(run_id: str) -> str:
    """What a run's model calls came to, all of them: tokens and money."""
    spent = sum((await spending(run_id)).values(), Spent())
    tokens = tokens_of(spent)
    return " · ".join(word for word in (tokens and f"{tokens} tokens", cost_of(spent)) if word)


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


def tokens_of(spent: Spent) -> str:
    return f"{spent.tokens / 1000:.1f}k" if spent.tokens else ""


def cost_of(spent: Spent) -> str:
    """In dollars; a price that is not known is said to be, never counted as nothing."""
    known = Decimal(spent.cost) / NANO
    if spent.unpriced:
        return f"${known:.3f}+?" if known else "$?"
    return f"${known:.3f}" if spent.calls else ""
