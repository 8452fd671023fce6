"""A run's steps, put together from its journal: the one way, for programs, terminals and pages.

It reads events with or without their payloads. `records_of` keeps what a page draws: every attempt
with its error, what a retry of the run made void, where input and output are in the journal.
`steps_of` gives the steps of whole events, payloads included. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.records import (
    CHILD_DROPPED,
    CHILD_ENDED,
    CHILD_STARTED,
    COMPLETIONS,
    RUN_COMPLETED,
    RUN_ENDS,
    RUN_RETRIED,
    STEP_CANCELLED,
    STEP_EDITED,
    STEP_FAILED,
    STEP_RETRYING,
    STEP_STARTED,
    TIMER_SET,
    WAIT_CREATED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    ErrorInfo,
    Event,
    Step,
    StepKind,
    StepStatus,
)

KINDS: dict[str, StepKind] = {
    STEP_STARTED: "step",
    TIMER_SET: "timer",
    WAIT_CREATED: "wait",
    CHILD_STARTED: "child",
    WEBHOOK_CREATED: "webhook",
}
CANCELLING = (STEP_CANCELLED, CHILD_DROPPED)
END_OF = "@run/"


class JournalRow(Protocol):
    """An event of a journal, as far as steps are concerned."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def size(self) -> int:
        """Bytes of its payload."""
        ...

    @property
    def round(self) -> int | None:
        """Which attempt of a loop a step belongs to, if that was looked for."""
        ...

    @property
    def passed(self) -> bool | None:
        """The verdict in a step's result, if that was looked for."""
        ...

    @property
    def summary(self) -> str: ...


def steps_of(journal: Sequence[Event]) -> list[Step]:
    """Everything a run did that takes time, in the order it began, with its payloads."""
    values = {event.seq: event.value for event in journal}
    return [
        Step(
            step.key,
            step.kind,
            step.name,
            step.status,
            step.started_at,
            step.seq,
            step.ended_at,
            step.attempts,
            values.get(step.input_seq),
            None if step.output_seq is None else values.get(step.output_seq),
            step.error,
            step.label,
            step.branch,
        )
        for step in records_of(journal)
    ]


@dataclass
class Attempt:
    """One try of a step that failed; the last one, if it went well, is the step itself."""

    number: int
    started_at: float
    ended_at: float
    error: ErrorInfo
    next_at: float | None = None


@dataclass
class StepRecord:
    """A step, timer, wait or child of a run."""

    key: str
    kind: StepKind
    name: str
    seq: int
    started_at: float
    input_seq: int = 0
    """Where its input is in the journal: with the event that began it, or that edited it."""
    status: StepStatus = "running"
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
    label: str = ""
    """What tells it from others of its name, as the workflow says."""
    branch: str = ""
    """The path of the branch of the body that asked for it, a space, and what it is called."""

    @property
    def outcome(self) -> str:
        """Its status; of a step whose result says that it did not pass, that."""
        return "not passed" if self.passed is False else self.status

    @property
    def busy(self) -> bool:
        """Whether it is work, rather than waiting."""
        return self.kind in ("step", "child")

    @property
    def went_wrong(self) -> bool:
        return self.outcome in ("failed", "not passed", "timed out")

    def seconds(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.started_at


def records_of(journal: Sequence[JournalRow]) -> list[StepRecord]:
    """Everything a run did that takes time, in the order it began."""
    steps: dict[str, StepRecord] = {}
    edited: dict[str, JournalRow] = {}
    closed_by: dict[int, StepRecord] = {}
    for row in journal:
        kind = KINDS.get(row.type)
        if kind is not None:
            steps[row.key] = _opened(row, kind, edited.get(row.key))
        elif row.type == STEP_EDITED:
            edited[row.key] = row
        elif row.type == RUN_RETRIED:
            for seq in row.facts.get("void", []):
                if seq in closed_by:
                    _reopen(closed_by[seq], row.at)
        elif row.key in steps:
            step = steps[row.key]
            _apply(step, row)
            if step.ended_at is not None:
                closed_by[row.seq] = step
    if journal and journal[-1].type in RUN_ENDS:
        for step in steps.values():
            if step.ended_at is None:
                step.status, step.ended_at = "cancelled", journal[-1].at
    return list(steps.values())


def _opened(row: JournalRow, kind: StepKind, edited: JournalRow | None) -> StepRecord:
    facts = row.facts
    child: dict[str, Any] = facts.get("run") or {}
    name = str(facts.get("name") or kind)
    given = edited or row
    step = StepRecord(row.key, kind, name, row.seq, row.at, given.seq, input_size=given.size)
    step.round, step.attempt_from, step.edited = row.round, row.at, edited is not None
    step.child_id = child.get("id") or (
        name.removeprefix(END_OF) if name.startswith(END_OF) else None
    )
    step.due_at = facts.get("fire_at") or facts.get("deadline")
    step.match = facts.get("match") or {}
    step.label, step.branch = facts.get("label") or "", facts.get("branch") or ""
    if kind in ("wait", "timer"):
        step.status = "waiting"
    if kind == "webhook":
        step.status, step.ended_at = "completed", row.at
    return step


def _reopen(step: StepRecord, at: float) -> None:
    """The run was retried: what failed in it is an attempt of the past."""
    error = step.error or ErrorInfo("Failed", step.verdict)
    ended = step.ended_at if step.ended_at is not None else at
    step.tries.append(Attempt(step.attempts, step.attempt_from, ended, error, at))
    step.attempts += 1
    step.attempt_from, step.ended_at, step.error = at, None, None
    step.status = "running"


def _apply(step: StepRecord, row: JournalRow) -> None:
    """Let one more event change a step."""
    facts = row.facts
    if row.type == STEP_RETRYING:
        next_at = facts.get("next_at")
        number = int(facts.get("attempt", step.attempts))
        step.tries.append(Attempt(number, step.attempt_from, row.at, error_of(facts), next_at))
        step.attempts, step.status = number + 1, "retrying"
        step.attempt_from = next_at or row.at
        step.error = error_of(facts)
        return
    if row.type not in COMPLETIONS and row.type not in CANCELLING:
        return
    step.ended_at = row.at
    if row.type in CANCELLING:
        step.status = "cancelled"
    elif row.type == STEP_FAILED:
        step.attempts = max(int(facts.get("attempts", 1)), step.attempts)
        step.status, step.error = "failed", error_of(facts)
    elif row.type == WAIT_TIMED_OUT:
        step.status = "timed out"
    elif row.type == CHILD_ENDED and facts.get("type") != RUN_COMPLETED:
        step.status = "failed"
        inner: dict[str, Any] = facts.get("facts") or {}
        step.error = error_of(inner) if inner.get("error") else None
    else:
        step.status = "completed"
        step.error = None
        step.output_seq, step.output_size = row.seq, row.size
        step.passed, step.verdict = row.passed, row.summary


def error_of(facts: dict[str, Any]) -> ErrorInfo:
    """The error an event tells of."""
    return ErrorInfo.from_json(facts.get("error") or {})
