"""Reading a store for those who look: the inspector, the API's records, `holdfast runs`.

A question is a function of a `View`, the store at one moment: `inspection.ask(question)` carries
it out in a thread, in one read transaction, so that what a page shows fits together. It never
waits for a writer and never makes one wait; what it may touch is bounded by an index and a limit,
so that a page costs the same with a hundred runs and with a hundred thousand. What to show is for
those who ask.

>>> page = await inspection.ask(lambda view: view.run_page(RunQuery(status=("failed",)), 50))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from holdfast.records import Run, Status, Worker
from holdfast.records.approvals import Approval, ApprovalStatus
from holdfast.records.calls import Call, Spend
from holdfast.records.flow import QueuePlace
from holdfast.records.live import Published
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.ledger import CallTotals

T = TypeVar("T")

COUNTED = 1000
"""Results are counted up to here; more is "over 1,000"."""
CHANGE_KINDS = ("calls", "sandboxes", "commands", "egress", "approvals", "workers")
"""The kinds of records that change without an event in the log."""

Changes = dict[str, set[str | None]]
"""By kind, the runs of which something began or ended; None: something of no run."""


@dataclass(frozen=True)
class RunQuery:
    """Which runs to list. Everything given must fit."""

    workflow: str | None = None
    status: tuple[Status, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    """Name, and value as JSON."""
    since: float | None = None
    until: float | None = None
    search: str = ""
    parent: str | None = None
    top_level: bool = False
    """Only runs that no other run started."""

    @property
    def is_plain(self) -> bool:
        """Whether kept counts say how many there are."""
        return (
            not (self.attributes or self.since or self.until or self.search or self.parent)
            and not self.top_level
        )


@dataclass(frozen=True)
class Doing:
    """What a run is at: an open step, wait or timer."""

    type: str
    name: str
    since: float
    attempt: int = 1


@dataclass(frozen=True)
class RunRow:
    """A run in the list."""

    run: Run
    input: bytes
    """The beginning of its input."""
    doing: Doing | None
    totals: CallTotals
    queue: QueuePlace | None = None
    """Why it has not begun."""


@dataclass(frozen=True)
class RunPage:
    """Some runs, newest first."""

    rows: list[RunRow]
    older: str | None
    """The next page lists runs below this id."""
    newer: str | None
    """The page before lists runs above this id; None on the first."""
    found: int | None
    """How many fit in all, up to COUNTED; None where that is not known."""
    searched_to: float | None
    """The search stopped at runs of this time; older ones may fit, too."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """How many runs there are, by workflow and status."""
    log: int = 0


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call, without what was said."""

    id: str
    status: str
    model: str
    provider: str | None
    served: str | None
    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None
    started_at: float
    finished_at: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost: int | None
    latency: float
    first_token: float | None
    attempts: list[dict[str, Any]]
    error: str | None
    message: str | None
    finish: str | None
    tags: list[str]

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Sum:
    """Calls of one model by one provider that ended alike and took about as long."""

    model: str
    provider: str
    status: str
    latency: float
    totals: CallTotals


@dataclass(frozen=True, slots=True)
class Slice:
    """What one model cost in one slice of time."""

    index: int
    model: str
    totals: CallTotals


@dataclass(frozen=True)
class CallFilter:
    """Which calls to list."""

    model: str | None = None
    provider: str | None = None
    status: str | None = None
    run_id: str | None = None
    since: float | None = None


@dataclass(frozen=True)
class CallPage:
    rows: list[CallRow]
    older: float | None
    log: int


@dataclass(frozen=True, slots=True)
class JournalRow:
    """An event, with the size of its payload instead of the payload."""

    seq: int
    type: str
    key: str
    at: float
    facts: dict[str, Any]
    size: int = 0
    log: int = 0
    round: int | None = None
    """Which attempt of a loop the step belongs to, by its own `attempt` argument."""
    passed: bool | None = None
    """The verdict in a step's result, if it has one."""
    summary: str = ""
    """The words of that verdict."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A piece of an event's payload."""

    data: bytes
    size: int
    """Of the whole, in bytes."""
    start: int = 0

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and len(self.data) == self.size


@dataclass(frozen=True)
class SandboxRow:
    """A sandbox in the list."""

    record: SandboxRecord
    commands: int
    failed: int
    """Commands that did not end with 0."""
    written: int
    """Bytes that its commands wrote."""
    reached: int
    """Attempts to reach the network."""
    refused: int
    cpu_seconds: float | None
    """What it used; of one that has not stopped, what its ended commands did. None: unknown."""
    peak_memory: int | None


@dataclass(frozen=True)
class SandboxList:
    rows: list[SandboxRow]
    older: str | None
    live: int
    log: int


@dataclass(frozen=True)
class SandboxDetail:
    """One sandbox with its commands and attempts, a page of each."""

    row: SandboxRow
    commands: list[CommandRecord]
    next_command: str | None
    egress: list[EgressRecord]
    next_egress: int | None
    log: int


@dataclass(frozen=True)
class StepWork:
    """What a step did in sandboxes."""

    commands: list[CommandRecord]
    sandboxes: list[SandboxRecord]
    refused: list[EgressRecord]
    """Attempts of those sandboxes to reach what they may not."""


@dataclass(frozen=True)
class Due:
    """Runs of a workflow that could go on, and nobody has taken."""

    workflow: str
    runs: int
    """Up to COUNTED."""
    since: float | None
    """Since when the first of them is due."""
    next_at: float | None
    """When the next one will be."""


@dataclass(frozen=True)
class Tenancy:
    """A worker, and some of the runs it has in hand."""

    worker: Worker
    runs: list[Run]


@dataclass(frozen=True)
class StoreState:
    """The store as a whole."""

    workers: list[Tenancy]
    due: list[Due]
    counts: dict[str, dict[str, int]]
    log: int
    schema: int
    page_bytes: int
    """What the store holds, free pages included."""
    free_bytes: int
    software: str
    """What keeps it, with its version."""
    files: list[tuple[str, int]]
    """Names and sizes of its files, if it has any."""
    processes: frozenset[str]
    """The processes on this machine that have it open."""


@dataclass(frozen=True, slots=True)
class ActivityPage(Generic[T]):
    """A page, and whether there is more behind it."""

    rows: list[T]
    more: bool


@dataclass(frozen=True, slots=True)
class Sums:
    """Of everything a run did."""

    calls: CallTotals
    sandboxes: int
    commands: int
    below: CallTotals
    """What its child runs called, and theirs; not in `calls`."""
    children: int
    """How many runs those are."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The beginning of what a run did, and the sums of all of it."""

    calls: ActivityPage[CallRow]
    sandboxes: ActivityPage[SandboxRecord]
    commands: ActivityPage[CommandRecord]
    sums: Sums


@dataclass(frozen=True)
class OpenVersion:
    """The runs of one version of a workflow that have not ended."""

    workflow: str
    version: str
    runs: dict[str, int]
    """By status."""
    oldest: float
    """When the first of them was created."""


class View(Protocol):
    """The store at one moment. Its methods are called in the thread that asks, and don't wait."""

    def log_end(self) -> int:
        """Where the log of all runs ends: live views go on from there."""
        ...

    def mark(self) -> str:
        """What stands for the state of all that changes without an event."""
        ...

    # runs
    def run(self, run_id: str) -> Run | None: ...
    def run_page(
        self, query: RunQuery, limit: int, below: str | None = None, above: str | None = None
    ) -> RunPage: ...
    def matching_runs(self, query: RunQuery, limit: int) -> list[str]: ...
    def open_versions(self) -> list[OpenVersion]:
        """The versions of workflows that have runs which have not ended."""
        ...

    def run_input(self, run_id: str) -> bytes:
        """The beginning of what a run was given."""
        ...

    def journal(self, run_id: str) -> list[JournalRow]: ...
    def payload(self, run_id: str, seq: int, start: int, limit: int) -> Payload | None: ...
    def published(self, run_id: str) -> list[Published]: ...
    def queue_place(self, run_id: str) -> QueuePlace | None: ...

    # approvals
    def approval(self, id: str, now: float) -> Approval | None: ...
    def approvals(
        self,
        status: ApprovalStatus | None,
        run_id: str | None,
        limit: int,
        before: str | None,
        now: float,
    ) -> list[Approval]: ...

    # model calls, and what they cost
    def call(self, id: str) -> Call | None: ...
    def call_row(self, id: str) -> CallRow: ...
    def call_page(self, which: CallFilter, limit: int, before: float | None) -> CallPage: ...
    def calls_of_run(self, run_id: str) -> list[CallRow]: ...
    def first_call(self) -> float | None: ...
    def call_sums(self, since: float) -> list[Sum]: ...
    def calls_over_time(self, since: float, width: float) -> list[Slice]: ...
    def limited_spend(self) -> list[Spend]: ...
    def spent(self, scope: str) -> Spend: ...
    def spent_most(self, kind: str, limit: int) -> list[Spend]: ...
    def call_totals(self, run_id: str) -> CallTotals: ...
    def call_totals_by_step(self, run_id: str) -> dict[str, CallTotals]: ...

    # what a run's steps did elsewhere
    def activity(self, run_id: str, limit: int) -> Activity: ...
    def activity_sums(self, run_id: str) -> Sums: ...
    def activity_calls(
        self, run_id: str, after: str | None, limit: int
    ) -> ActivityPage[CallRow]: ...
    def activity_sandboxes(
        self, run_id: str, after: str | None, limit: int
    ) -> ActivityPage[SandboxRecord]: ...
    def activity_commands(
        self, run_id: str, after: str | None, limit: int
    ) -> ActivityPage[CommandRecord]: ...

    # sandboxes
    def sandbox_list(self, live: bool | None, limit: int, below: str | None) -> SandboxList: ...
    def sandbox_detail(
        self, id: str, limit: int, command: str | None, egress: int | None
    ) -> SandboxDetail | None: ...
    def step_work(self, run_id: str, step_key: str) -> StepWork: ...

    # workers and the store itself
    def state(self, now: float) -> StoreState: ...


class ChangeDetector(Protocol):
    """Notices what changed that is not in the log of events."""

    def has_changed(self) -> bool:
        """Whether a look may find something; takes microseconds, and never waits."""
        ...

    def look(self) -> Changes:
        """What was changed since the last look; the first finds nothing. May wait."""
        ...

    def mark(self) -> str:
        """What stands for the state as of the last look."""
        ...

    def has_open(self, run_id: str) -> bool:
        """Whether a call, a sandbox or a command of a run was under way at the last look."""
        ...

    def close(self) -> None: ...


class Inspection(Protocol):
    """See the module's text."""

    name: str
    """What to call the store in messages."""

    async def ask(self, question: Callable[[View], T]) -> T: ...
    def detector(self) -> ChangeDetector: ...
    def close(self) -> None: ...
