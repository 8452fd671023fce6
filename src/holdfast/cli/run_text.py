"""A run and its steps in words and as JSON: what `run`, `repo`, `runs`, `worker` print of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from holdfast.agents import run_words
from holdfast.agents.run_words import about
from holdfast.cli.output import duration, moment, note, plain, short
from holdfast.records import ErrorInfo, Event, Run, Step
from holdfast.records.calls import NANO
from holdfast.runtime.step_records import END_OF, steps_of
from holdfast.store import opener
from holdfast.store.inspection import Sums, View
from holdfast.store.ledger import CallTotals


def step_name(step: Step) -> str:
    """What a step is called: the function's name, or what is waited for."""
    name = plain(run_words.step_name(step.kind, step.name))
    if step.kind == "wait" and step.name.startswith(END_OF):
        return f"end of {step.name.removeprefix(END_OF)}"
    prefix = {"wait": "event ", "child": "run of "}.get(step.kind, "")
    return name if step.name.startswith("@") else prefix + name


def needs_telling(step: Step, names: Mapping[str, int]) -> bool:
    """Whether a step has to be told from others: labelled, a tool's, or one of several at once."""
    if step.label or step.name.startswith(run_words.TOOL):
        return True
    return names[step.name] > 1 and "." in step.key


def told_apart(step: Step) -> str:
    """What tells a step from others of its name: its label, or its arguments."""
    if step.label or step.kind not in ("step", "child"):
        return step.label
    return run_words.step_arguments(step.name, run_words.object_in(step.input))


def outcome(step: Step, width: int) -> str:
    """What came of a step, in a few words."""
    words: list[str] = []
    if step.attempts > 1:
        words.append(f"attempt {step.attempts}")
    if step.status in ("timed out", "cancelled"):
        words.append(step.status)
    if step.error is not None:
        words.append(short(str(step.error), width))
    elif step.output not in (None, b"null"):
        words.append(short(result_words(step), width))
    return "  ".join(words)


def result_words(step: Step) -> str:
    """A step's result: what the model said or the tool told, or else as JSON."""
    asks = (run_words.ASK, run_words.READ)
    if step.name.startswith((*run_words.THINKS, run_words.TOOL)) or step.name in asks:
        return run_words.step_outcome(step.name, run_words.object_in(step.output))
    return (step.output or b"").decode()


def header(run: Run, journal: list[Event], now: float) -> list[tuple[str, str]]:
    """What there is to say about a run as a whole, as name and text."""
    facts = [("run", run.id), ("workflow", f"{run.workflow} (version {run.version})")]
    facts.append(("status", run.status + _since(run, now)))
    optional = {
        "key": run.key,
        "parent": run.parent_id,
        "forked from": run.forked_from,
        "continues": run.continued_from,
        "went on as": run.continued_as,
        "worker": run.owner,
        "due": moment(run.due_at) if run.due_at and run.due_at > now else None,
        "deadline": moment(run.deadline) if run.deadline and not run.ended else None,
        "attributes": ", ".join(f"{name}={value}" for name, value in run.attributes.items()),
    }
    facts.append(("created", moment(run.created_at)))
    facts += [(name, text) for name, text in optional.items() if text]
    facts.append(("input", (journal[0].value or b"{}").decode()))
    result = result_of(run, journal)
    if result is not None:
        facts.append(("result", result.decode()))
    return facts


def _since(run: Run, now: float) -> str:
    if run.started_at is None:
        return ""
    if run.finished_at is not None:
        return f" after {duration(run.finished_at - run.started_at)}"
    return f", begun {duration(now - run.started_at)} ago"


def result_of(run: Run, journal: list[Event]) -> bytes | None:
    """The run's result as JSON, once it has completed."""
    return journal[-1].value or b"null" if run.status == "completed" else None


def failure_of(run: Run, journal: list[Event]) -> ErrorInfo | None:
    """The error a run failed with or is stuck on."""
    if run.status not in ("failed", "stuck"):
        return None
    error = journal[-1].facts.get("error")
    return ErrorInfo.from_json(error) if error else None


def hint_for(run: Run, journal: list[Event]) -> str | None:
    """What to do about a run that needs somebody."""
    actions = {
        "failed": f"holdfast runs retry {run.id} goes on from where it failed",
        "stuck": f"holdfast runs resume {run.id} tries again, once the code fits the journal",
        "paused": f"holdfast runs resume {run.id} lets it go on",
    }
    action = actions.get(run.status)
    failure = failure_of(run, journal)
    own = None if failure is None else failure.hint
    return f"{own}; {action}" if own else action


def show_hint(run: Run, journal: list[Event]) -> None:
    """Say what to do about a run that needs somebody."""
    hint = hint_for(run, journal)
    if hint:
        note(f"  hint: {plain(hint)}")


def run_json(run: Run, journal: list[Event]) -> dict[str, Any]:
    """A run with everything that is known of it, for programs."""
    result, failure = result_of(run, journal), failure_of(run, journal)
    return {
        **run.as_json(),
        "input": json.loads(journal[0].value or b"{}"),
        "result": None if result is None else json.loads(result),
        "failure": failure.shown() if failure else None,
        "hint": hint_for(run, journal),
        "steps": [step.as_json() for step in steps_of(journal)],
    }


def ending(run: Run) -> str:
    """How a run stands, on one line."""
    words = run.status if run.continued_as is None else f"continued as {run.continued_as}"
    if run.finished_at is not None and run.started_at is not None:
        words += f" after {duration(run.finished_at - run.started_at)}"
    return f"{words}: {plain(run.error)}" if run.error else words


def exit_code(run: Run) -> int:
    """0 for a run that completed or goes on as another, 1 for one that ended otherwise."""
    return 0 if run.status in ("completed", "continued") else 1


def origins(failure: ErrorInfo) -> list[str]:
    """What an error came from, a line each: its causes, its context, a group's members."""
    found: list[str] = []
    for depth, relation, error in failure.origins():
        indent = "  " * depth
        found.append(f"{indent}{relation} {short(str(error), 200)}")
        found += [f"{indent}  note: {short(note, 200)}" for note in error.notes]
    return found


def innermost(traceback: str) -> list[str]:
    """The end of a traceback: the line of code that raised, and the error."""
    lines = traceback.rstrip().splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    return lines[places[-1] :] if places else lines[-1:]


# --- what a run is about, and what it cost ---

ABOUT_WIDTH = 400
"""Characters; a table cuts it to what fits."""


@dataclass(frozen=True)
class About:
    """Of one run."""

    words: str
    """The task, or the arguments."""
    spent: CallTotals

    @property
    def cost_text(self) -> str:
        return cost_of(self.spent)

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.words,
            "model": self.spent.model or None,
            **_spent_json(self.spent),
        }


async def about_runs(store: str, ids: Sequence[str]) -> dict[str, About]:
    """What each of these runs is about."""

    def ask(view: View) -> dict[str, About]:
        return {id: _about(view, id) for id in ids}

    inspection = opener.inspection(store)
    try:
        return await inspection.ask(ask)
    finally:
        inspection.close()


def _about(view: View, run_id: str) -> About:
    run = view.run(run_id)
    attributes = {} if run is None else run.attributes
    return About(about(attributes, view.run_input(run_id), ABOUT_WIDTH), view.call_totals(run_id))


@dataclass(frozen=True)
class Spending:
    """What a run's model calls came to, and those of its child runs."""

    sums: Sums

    @property
    def lines(self) -> list[tuple[str, str]]:
        """As `runs show` says it; nothing where there is nothing."""
        said: list[tuple[str, str]] = []
        if self.sums.calls.calls:
            said.append(("model calls", _spent_text(self.sums.calls)))
        if self.sums.children:
            below = _spent_text(self.sums.below) if self.sums.below.calls else ""
            said.append(("child runs", f"{self.sums.children}{below and ': model calls '}{below}"))
        return said

    def as_json(self) -> dict[str, Any]:
        """Of the run itself, and of the runs below it."""
        return {
            **_spent_json(self.sums.calls),
            "children": {"runs": self.sums.children, **_spent_json(self.sums.below)},
        }


def _spent_text(spent: CallTotals) -> str:
    parts = [f"{spent.calls}", f"{spent.tokens:,} tokens", cost_of(spent), plain(spent.model)]
    return ", ".join(part for part in parts if part)


def _spent_json(spent: CallTotals) -> dict[str, Any]:
    return {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "cost": float(Decimal(spent.cost) / NANO) if spent.calls else None,
    }


async def spending(store: str, run_id: str) -> Spending:
    """What a run and the runs below it spent on models."""
    inspection = opener.inspection(store)
    try:
        return Spending(await inspection.ask(lambda view: view.activity_sums(run_id)))
    finally:
        inspection.close()


def tokens_of(spent: CallTotals) -> str:
    """In thousands; nothing where none were used."""
    return f"{spent.tokens / 1000:.1f}k" if spent.tokens else ""


def cost_of(spent: CallTotals) -> str:
    """In dollars; a price that is not known is said to be, never counted as nothing."""
    known = Decimal(spent.cost) / NANO
    if spent.unpriced:
        return f"${known:.3f}+?" if known else "$?"
    return f"${known:.3f}" if spent.calls > spent.open else ""
