"""What is stored and shown: the records every layer speaks of.

Plain immutable values; how they are kept is the store's business. Here are those of the runtime
(its errors are in `error_info.py`); model calls are in `calls.py`, sandboxes in `sandboxes.py`,
loaded by those who speak of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from holdfast.records.error_info import ErrorInfo as ErrorInfo

# --- the journal ---------------------------------------------------------------------------

# Run-level events.
RUN_CREATED: Final = "run.created"
RUN_STARTED: Final = "run.started"
RUN_COMPLETED: Final = "run.completed"
RUN_FAILED: Final = "run.failed"
RUN_CANCELLED: Final = "run.cancelled"
RUN_CONTINUED: Final = "run.continued"
"""The run goes on as a new one: see `continue_as_new`."""
RUN_STUCK: Final = "run.stuck"
RUN_PAUSED: Final = "run.paused"
RUN_RESUMED: Final = "run.resumed"
RUN_RETRIED: Final = "run.retried"
RUN_FORKED: Final = "run.forked"
"""Where a run forked from another begins to be itself."""
CANCEL_REQUESTED: Final = "cancel.requested"
# A command opens a key: something the workflow asked for.
STEP_STARTED: Final = "step.started"
TIMER_SET: Final = "timer.set"
WAIT_CREATED: Final = "wait.created"
CHILD_STARTED: Final = "child.started"
WEBHOOK_CREATED: Final = "webhook.created"
PATCH_MARKED: Final = "patch.marked"
ATTRIBUTES_SET: Final = "attributes.set"
STREAM_WRITTEN: Final = "stream.written"
VALUE_PUBLISHED: Final = "value.published"
UPDATE_ANSWERED: Final = "update.answered"
# A completion closes a key: what came of it.
STEP_COMPLETED: Final = "step.completed"
STEP_FAILED: Final = "step.failed"
TIMER_FIRED: Final = "timer.fired"
WAIT_RECEIVED: Final = "wait.received"
WAIT_TIMED_OUT: Final = "wait.timed_out"
CHILD_ENDED: Final = "child.ended"
# A note changes nothing on replay.
STEP_RETRYING: Final = "step.retrying"
STEP_CANCELLED: Final = "step.cancelled"
STEP_EDITED: Final = "step.edited"
STEP_PUBLISHED: Final = "step.published"
CHILD_DROPPED: Final = "child.dropped"
"""The body no longer waits for a child: the child is cancelled with this event's commit."""

COMMANDS: Final = frozenset(
    {
        STEP_STARTED,
        TIMER_SET,
        WAIT_CREATED,
        CHILD_STARTED,
        WEBHOOK_CREATED,
        PATCH_MARKED,
        ATTRIBUTES_SET,
        STREAM_WRITTEN,
        VALUE_PUBLISHED,
        UPDATE_ANSWERED,
    }
)
COMPLETIONS: Final = frozenset(
    {STEP_COMPLETED, STEP_FAILED, TIMER_FIRED, WAIT_RECEIVED, WAIT_TIMED_OUT, CHILD_ENDED}
)
RUN_ENDS: Final = frozenset({RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED, RUN_CONTINUED})


class Event(NamedTuple):
    """One row of a run's journal. (A named tuple: two are made for every step.)"""

    run_id: str
    seq: int
    type: str
    key: str
    """The command this event opens or closes: the task's path and the place in it; or ""."""
    at: float
    meta: str = "{}"
    """Small facts about the event, as JSON."""
    value: bytes | None = None
    """The payload, as JSON: arguments, a result, an event's body."""
    log: int = 0
    """The event's place in the log of all runs; 0 until it is stored."""

    @property
    def facts(self) -> dict[str, Any]:
        """`meta`, read."""
        return json.loads(self.meta)

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.value or b"")

    # What only a reader that looks into payloads knows of an event.
    @property
    def round(self) -> int | None:
        return None

    @property
    def passed(self) -> bool | None:
        return None

    @property
    def summary(self) -> str:
        return ""


# --- runs ----------------------------------------------------------------------------------

Status = Literal[
    "queued",
    "pending",
    "running",
    "waiting",
    "paused",
    "stuck",
    "completed",
    "failed",
    "cancelled",
    "continued",
]
ENDED: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled", "continued"})


@dataclass(frozen=True)
class Run:
    """A run as listed and shown. Its result and error are in its journal's last event."""

    id: str
    workflow: str
    version: str
    status: Status
    created_at: float
    key: str | None = None
    parent_id: str | None = None
    forked_from: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    due_at: float | None = None
    owner: str | None = None
    error: str | None = None
    """One line on why it failed or is stuck."""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    continued_from: str | None = None
    """The run that has gone on as this one."""
    continued_as: str | None = None
    """The run that this one has gone on as."""
    timeout: float | None = None
    """How many seconds the run was given, from the moment it might begin."""
    deadline: float | None = None
    """When the run has to have ended: then it fails with RunTimeout, wherever it stands."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "workflow": self.workflow,
            "version": self.version,
            "status": self.status,
            "key": self.key,
            "parent_id": self.parent_id,
            "forked_from": self.forked_from,
            "continued_from": self.continued_from,
            "continued_as": self.continued_as,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "due_at": self.due_at,
            "timeout": self.timeout,
            "deadline": self.deadline,
            "owner": self.owner,
            "error": self.error,
            "attributes": self.attributes,
        }


StepKind = Literal["step", "timer", "wait", "child", "webhook"]
StepStatus = Literal[
    "running", "retrying", "waiting", "completed", "failed", "cancelled", "timed out"
]


@dataclass(frozen=True)
class Step:
    """A step (or timer, wait, child) of a run, put together from the journal."""

    key: str
    kind: StepKind
    name: str
    status: StepStatus
    started_at: float
    seq: int
    ended_at: float | None = None
    attempts: int = 1
    input: bytes | None = None
    output: bytes | None = None
    error: ErrorInfo | None = None
    label: str = ""
    """What tells it from others of its name, as the workflow says."""
    branch: str = ""
    """The path of the branch of the body that asked for it, a space, and what it is called."""

    @cached_property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else self.ended_at - self.started_at

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "kind": self.kind,
            "name": self.name,
            "label": self.label or None,
            "branch": self.branch or None,
            "status": self.status,
            "attempts": self.attempts,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "input": None if self.input is None else json.loads(self.input),
            "output": None if self.output is None else json.loads(self.output),
            "error": None if self.error is None else self.error.shown(),
        }


# --- waiting -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """An event somebody sent, as kept for the runs that wait for it."""

    id: int
    event_id: str
    name: str
    run_id: str | None
    payload: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a run's stream."""

    index: int
    data: bytes
    at: float
    step: str
    """Key of the step that wrote it, or "" for the workflow's body."""
    attempt: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that carries out runs."""

    id: str
    pid: int
    host: str
    started_at: float
    expires_at: float
    """When its lease ends unless it is renewed, by the wall clock: for show."""
    runs: int = 0
    lease_seconds: float = 0.0
    """What a worker asks for: by whose clock they are counted is the store's business."""
