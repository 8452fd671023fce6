"""A run's steps, put together from its journal without payloads. Pure functions.

Unlike `runtime.step_records`, which gives records to programs, this keeps what a page draws: every
attempt with its error, what a retry of the run made void, where input and output are in the
journal, and which round of a loop a step belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import records
from holdfast.records import ErrorInfo, Run
from holdfast.records.live import ANSWER, UPDATE
from holdfast.store.sqlite.approvals import DECIDED
from holdfast.store.sqlite.journal_views import Row

KINDS = {
    records.STEP_STARTED: "step",
    records.TIMER_SET: "timer",
    records.WAIT_CREATED: "wait",
    records.CHILD_STARTED: "child",
    records.WEBHOOK_CREATED: "webhook",
}
CANCELLING = (records.STEP_CANCELLED, records.CHILD_DROPPED)
END_OF = "@run/"
WEBHOOK = "@webhook/"


@dataclass
class Attempt:
    """One try of a step that failed; the last one, if it went well, is the step itself."""

    number: int
    started_at: float
    ended_at: float
    error: ErrorInfo
    next_at: float | None = None


@dataclass
class StepView:
    """A step, timer, wait or child of a run."""

    key: str
    kind: str
    name: str
    seq: int
    started_at: float
    input_seq: int = 0
    """Where its input is in the journal: with the event that began it, or that edited it."""
    status: str = "running"
    ended_at: float | None = None
    input_size: int = 0
    output_seq: int | None = None
    output_size: int = 0
    error: ErrorInfo | None = None
    tries: list[Attempt] = field(default_factory=list[Attempt])
    attempts: int = 1
    attempt_from: float = 0.0
    """When the latest attempt began."""
    round: int | None = None
    passed: bool | None = None
    verdict: str = ""
    child_id: str | None = None
    due_at: float | None = None
    match: dict[str, Any] = field(default_factory=dict[str, Any])
    edited: bool = False

    @property
    def label(self) -> str:
        """What to call it: the function's name, or what is waited for."""
        if self.kind == "wait" and self.name.startswith(END_OF):
            return "end of run"
        if self.kind == "wait" and self.name.startswith(UPDATE):
            return f"update {self.name.removeprefix(UPDATE)}"
        if self.kind == "wait" and self.name.startswith(ANSWER):
            return f"answer of {self.name.removeprefix(ANSWER).partition('/')[0]}"
        if self.kind == "wait" and self.name.startswith(WEBHOOK):
            return "webhook called"
        if self.kind == "wait" and self.name.startswith(DECIDED):
            return "decision"
        if self.kind == "webhook":
            return "webhook made"
        return self.name

    @property
    def busy(self) -> bool:
        """Whether it is work, rather than waiting."""
        return self.kind in ("step", "child")

    @property
    def went_wrong(self) -> bool:
        return self.status in ("failed", "not passed", "timed out")

    def seconds(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.started_at


def steps_of(journal: Iterable[Row], run: Run) -> list[StepView]:
    """Everything the run did that takes time, in the order it began."""
    steps: dict[str, StepView] = {}
    edited: dict[str, Row] = {}
    closed_by: dict[int, StepView] = {}
    for row in journal:
        kind = KINDS.get(row.type)
        if kind is not None:
            steps[row.key] = _opened(row, kind, edited.get(row.key))
        elif row.type == records.STEP_EDITED:
            edited[row.key] = row
        elif row.type == records.RUN_RETRIED:
            for seq in row.facts.get("void", []):
                if seq in closed_by:
                    _reopen(closed_by[seq], row.at)
        elif row.key in steps:
            step = steps[row.key]
            _apply(step, row)
            if step.ended_at is not None:
                closed_by[row.seq] = step
    if run.ended:
        for step in steps.values():
            if step.ended_at is None:
                step.status, step.ended_at = "cancelled", run.finished_at
    return list(steps.values())


def _opened(row: Row, kind: str, edited: Row | None) -> StepView:
    facts = row.facts
    child: dict[str, Any] = facts.get("run") or {}
    name = str(facts.get("name") or kind)
    given = edited or row
    step = StepView(row.key, kind, name, row.seq, row.at, given.seq, input_size=given.size)
    step.round, step.attempt_from, step.edited = row.round, row.at, edited is not None
    step.child_id = child.get("id") or (
        name.removeprefix(END_OF) if name.startswith(END_OF) else None
    )
    step.due_at = facts.get("fire_at") or facts.get("deadline")
    step.match = facts.get("match") or {}
    if kind in ("wait", "timer"):
        step.status = "waiting"
    if kind == "webhook":
        step.status, step.ended_at = "completed", row.at
    return step


def _reopen(step: StepView, at: float) -> None:
    """The run was retried: what failed in it is an attempt of the past."""
    error = step.error or ErrorInfo("Failed", step.verdict)
    ended = step.ended_at if step.ended_at is not None else at
    step.tries.append(Attempt(step.attempts, step.attempt_from, ended, error, at))
    step.attempts += 1
    step.attempt_from, step.ended_at, step.error = at, None, None
    step.status = "running"


def _apply(step: StepView, row: Row) -> None:
    """Let one more event change a step."""
    facts = row.facts
    if row.type == records.STEP_RETRYING:
        next_at = facts.get("next_at")
        number = int(facts.get("attempt", step.attempts))
        step.tries.append(Attempt(number, step.attempt_from, row.at, error_of(facts), next_at))
        step.attempts, step.status = number + 1, "retrying"
        step.attempt_from = next_at or row.at
        step.error = error_of(facts)
        return
    if row.type not in records.COMPLETIONS and row.type not in CANCELLING:
        return
    step.ended_at = row.at
    if row.type in CANCELLING:
        step.status = "cancelled"
    elif row.type == records.STEP_FAILED:
        step.attempts = max(int(facts.get("attempts", 1)), step.attempts)
        step.status, step.error = "failed", error_of(facts)
    elif row.type == records.WAIT_TIMED_OUT:
        step.status = "timed out"
    elif row.type == records.CHILD_ENDED and facts.get("type") != records.RUN_COMPLETED:
        step.status = "failed"
        inner: dict[str, Any] = facts.get("facts") or {}
        step.error = error_of(inner) if inner.get("error") else None
    else:
        step.status = "not passed" if row.passed is False else "completed"
        step.error = None
        step.output_seq, step.output_size = row.seq, row.size
        step.passed, step.verdict = row.passed, row.summary


def error_of(facts: dict[str, Any]) -> ErrorInfo:
    """The error an event tells of."""
    return ErrorInfo.from_json(facts.get("error") or {})


def opens_on(steps: Sequence[StepView], run: Run) -> StepView | None:
    """The step a run's page shows at first: what failed, or what it is at, or the last."""
    if not steps:
        return None
    if run.status in ("failed", "stuck"):
        failed = [step for step in steps if step.status in ("failed", "timed out")]
        return failed[-1] if failed else steps[-1]
    if not run.ended:
        open = [step for step in steps if step.ended_at is None]
        return open[-1] if open else steps[-1]
    return steps[-1]
