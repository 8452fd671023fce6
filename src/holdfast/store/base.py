"""The store's contract: what the runtime asks of whoever keeps its records.

A store keeps every run's journal and hands runs out to workers. It guarantees:
- what it has acknowledged is on disk;
- the journal of a run has one writer at a time: an append that names an old fence is refused;
- an event and what follows from it (status, waits, mail for others) become visible together.

What a run does is the runtime's business; the store never looks into payloads, but for the
top-level matching of events to waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from holdfast.clock import Clock
from holdfast.errors import CorruptEvent, HoldfastError
from holdfast.records import RUN_CREATED, Chunk, Event, Message, Run, Status, Worker
from holdfast.records.approvals import Approval, ApprovalStatus, Verdict
from holdfast.records.flow import Gather, Pace, QueuePlace, StartRate
from holdfast.records.live import Published, UpdateRecord
from holdfast.store.retention import RetentionStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.subscriptions import SubscriptionStore

END_OF: Final = "@run/"
"""Prefix of the wait for the end of a run."""
DECIDED: Final = "@approval/"
"""Prefix of the event that tells a run of a decision."""
TERMINATED: Final = {
    "terminated": True,
    "error": {"type": "Terminated", "message": "it was ended without its `finally` blocks"},
}
"""Facts about the end of a run that was terminated."""

KeyPolicy = Literal["return", "refuse", "start_new", "replace"]
"""What a start does whose key belongs to a run that has ended: give that run, raise KeyUsed, or
start a new one that has the key from then on. A run that has not ended is found by all but
`replace`, which cancels it."""


@dataclass(frozen=True)
class NewRun:
    """A run to be created: its row and the first event of its journal."""

    id: str
    workflow: str
    version: str
    input: bytes
    meta: dict[str, Any]
    """Facts for the first event: at least the seed of the run's randomness."""
    created_at: float
    due_at: float
    key: str | None = None
    parent_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    run_limit: int | None = None
    lane: str | None = None
    lane_limit: int | None = None
    key_policy: KeyPolicy = "return"
    timeout: float | None = None
    """How many seconds it has from the moment it is due; None: all the time."""
    pace: Pace | None = None
    """How many may begin in a stretch of time."""
    priority: float = 0.0
    """It comes before others as if it had been started so many seconds earlier."""
    start_rates: Sequence[StartRate] = ()
    """How often such a run may be started from outside."""
    gather: Gather | None = None
    """It goes into a run that has not begun, if there is one with the same key."""

    @property
    def deadline(self) -> float | None:
        """When it has to have ended."""
        return None if self.timeout is None else self.due_at + self.timeout

    def first_event(self) -> Event:
        """The first event of its journal: all that its body may know of how it was created."""
        facts = dict(self.meta)
        if self.key is not None:
            facts["key"] = self.key
        if self.parent_id is not None:
            facts["parent"] = self.parent_id
        if self.attributes:
            facts["attributes"] = self.attributes
        if self.deadline is not None:
            facts["deadline"] = self.deadline
        return Event(self.id, 1, RUN_CREATED, "", self.created_at, json.dumps(facts), self.input)


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker now owns, until another claim raises the fence."""

    run: Run
    fence: int
    crashes: int
    """How often in a row workers died with this run and without any progress."""


@dataclass(frozen=True, slots=True)
class Created:
    run: Run
    existed: bool
    claim: Claim | None = None


@dataclass(slots=True)
class Append:
    """Events to add to one journal, in order, by its owner."""

    run_id: str
    fence: int
    events: list[Event]
    done: Callable[[Append, HoldfastError | None], None]
    """Called on the store's loop once the events are on disk, or have been refused."""

    def settle(self, _value: object, error: HoldfastError | None) -> None:
        self.done(self, error)


@dataclass(frozen=True, slots=True)
class Mail:
    """Something that others left for a run's owner."""

    id: int
    run_id: str
    kind: Literal["event", "ended", "cancel", "pause", "resume", "terminate"]
    key: str
    message: Message | None
    ended: Event | None
    """For `ended`: the last event of the run that was waited for."""
    damaged: CorruptEvent | None = None
    """For `ended`: why that event can't be had."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit means for others."""

    mail: frozenset[str] = frozenset()
    """Runs that have mail."""
    ended: Mapping[str, Event] = field(default_factory=dict[str, Event])
    """Runs that have ended or were parked, and the event that says so."""
    due: bool = False
    """A run may have become claimable."""


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list. Everything given must fit."""

    workflow: str | None = None
    status: Sequence[Status] = ()
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    parent_id: str | None = None
    top_level: bool = False
    """Only runs that no other run started."""
    created_after: float | None = None
    created_before: float | None = None
    text: str | None = None
    """Somewhere in id, workflow, key, error or an attribute, in whatever case."""


@dataclass(frozen=True)
class Page:
    """Some runs, newest first, and where the next page begins.

    In a search for text a page may be short, or empty, and still not be the last.
    """

    runs: list[Run]
    cursor: str | None


class Store(ScheduleStore, SubscriptionStore, RetentionStore, Protocol):
    """Where runs live. See the module's text for what it guarantees."""

    name: str
    """What to call this store in messages: its path."""

    clock: Clock
    """Whose time it goes by: when runs are due, and leases end."""

    on_change: Callable[[Change | None], None]
    """Called on the loop after a commit, here or (with None: look for yourself) elsewhere."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    # the journal
    def append(self, append: Append) -> None: ...
    async def load(self, run_id: str) -> list[Event]: ...
    async def last_event(self, run_id: str) -> Event: ...

    # what another engine keeps here for a run, because it is too large for it
    async def keep_blob(self, run_id: str, data: bytes) -> str:
        """Keep some bytes as long as the run, and return the name by which they are had."""
        ...

    async def blob(self, run_id: str, name: str) -> bytes:
        """What was kept, as it was; raises NotFound, or CorruptEvent if it is damaged."""
        ...

    # ownership
    async def create(self, new: NewRun, worker: Worker | None) -> Created: ...
    async def lost_workers(self, me: str) -> list[str]: ...
    async def claim(
        self,
        worker: Worker,
        workflows: Sequence[str],
        limit: int,
        lost: Sequence[str],
        versions: Mapping[str, str] | None = None,
    ) -> list[Claim]:
        """Take runs of these workflows that are due; of one in `versions`, only of that version."""
        ...

    async def held(self, worker_id: str) -> list[Claim]:
        """The runs that a worker owns, as it has claimed them."""
        ...

    async def renew(self, worker: Worker) -> None: ...
    def renew_apart(self, worker: Worker) -> None:
        """Renew at once, from any thread: for when the loop is held up."""
        ...

    def park_apart(self, run_id: str, fence: int, facts: dict[str, Any], at: float) -> None:
        """Park a run at once, from any thread, with the loop held up by it."""
        ...

    async def keep_due(self, before: float) -> None: ...
    async def release(self, run_id: str, fence: int, due_at: float | None) -> bool: ...
    async def retire(self, worker_id: str) -> None: ...
    async def next_due(
        self, me: str, workflows: Sequence[str], versions: Mapping[str, str] | None = None
    ) -> float | None: ...

    async def park(self, run_id: str, fence: int, facts: dict[str, Any], at: float) -> None: ...

    # mail
    async def mail(self, worker_id: str) -> list[Mail]: ...
    async def drop_mail(self, ids: Sequence[int]) -> None: ...
    async def send(
        self, name: str, payload: bytes, event_id: str, run_id: str | None, at: float
    ) -> bool: ...
    async def webhook(self, token: str) -> tuple[str, str] | None: ...
    async def send_update(
        self, run_id: str, name: str, payload: bytes, id: str, at: float
    ) -> UpdateRecord: ...
    async def update(self, run_id: str, id: str) -> UpdateRecord | None: ...

    # steering
    async def request(
        self, run_id: str, kind: Literal["cancel", "pause", "terminate"], at: float
    ) -> None: ...
    async def resume(self, run_id: str, at: float) -> None: ...
    async def retry(self, run_id: str, at: float) -> None: ...
    async def fork(self, new: NewRun, source: str, history: Sequence[Event]) -> Run: ...
    async def restore(self, run: Run, history: Sequence[Event]) -> None:
        """Put a run of another store that has ended in place, as it was there, without its key."""
        ...

    async def delete(self, run_id: str, at: float) -> list[str]: ...
    async def purge(self) -> None: ...

    # approvals, and what must begin once
    async def add_approval(self, new: Approval) -> None: ...
    async def approval(self, id: str) -> Approval | None: ...
    async def approvals(
        self, status: ApprovalStatus | None, run: str | None, limit: int, before: str | None
    ) -> list[Approval]: ...
    async def decide_approval(self, id: str, verdict: Verdict) -> Approval: ...
    async def lapse_approval(self, id: str, verdict: Verdict) -> Approval: ...
    async def use_approval(self, id: str, step: str) -> Approval: ...
    async def begin_once(self, run_id: str, key: str) -> bool: ...
    async def secret(self, name: str) -> bytes: ...

    # streams
    async def write_chunk(
        self, run_id: str, fence: int, stream: str, data: bytes, at: float, step: str, attempt: int
    ) -> int: ...
    async def chunks(self, run_id: str, stream: str, start: int, limit: int) -> list[Chunk]: ...

    # questions
    async def get(self, run_id: str) -> Run | None: ...
    async def queue_place(self, run_id: str) -> QueuePlace | None:
        """Why a run has not begun, if it is its flow control that holds it."""
        ...

    async def published(self, run_id: str) -> list[Published]: ...
    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None) -> Page: ...
    async def events(self, run_id: str, after: int, limit: int) -> list[Event]: ...
    async def log(self, after: int, limit: int, run_id: str | None = None) -> list[Event]: ...
    async def log_end(self) -> int: ...
    async def workers(self) -> list[Worker]: ...
    async def backup(self, target: Path) -> None: ...
