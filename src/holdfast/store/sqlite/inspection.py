"""The store's file as those see it who look: `store/inspection.py` says what they may ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.records import Run
from holdfast.records.approvals import Approval, ApprovalStatus
from holdfast.records.calls import Call, Spend
from holdfast.records.flow import QueuePlace
from holdfast.records.live import Published
from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.store.connection import Connection
from holdfast.store.inspection import (
    Activity,
    ActivityPage,
    CallFilter,
    CallPage,
    CallRow,
    JournalRow,
    OpenVersion,
    Payload,
    RunPage,
    RunQuery,
    SandboxDetail,
    SandboxList,
    Slice,
    StepWork,
    StoreState,
    Sum,
    Sums,
    View,
)
from holdfast.store.ledger import CallTotals
from holdfast.store.sqlite import (
    activity,
    approvals,
    call_views,
    changes,
    gathering,
    journal_views,
    ledger_rows,
    queries,
    run_views,
    sandbox_views,
    worker_views,
)
from holdfast.store.sqlite.changes import SqliteChangeDetector
from holdfast.store.sqlite.database import Database

T = TypeVar("T")


class SqliteInspection:
    """Reads the store at `path`; the file has to exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self._database = Database.open(path)
        self._closed = False

    async def ask(self, question: Callable[[View], T]) -> T:
        """The answer to a question, asked in a thread, in one read transaction."""
        # Text that is damaged is shown as far as it can be read; the runtime refuses it.
        answer = self._database.read(lambda c: question(SqliteView(c, self.path)), lenient=True)
        return await asyncio.wrap_future(answer)

    def detector(self) -> SqliteChangeDetector:
        """One for whoever follows what changes; to be closed."""
        return SqliteChangeDetector(self.path)

    def close(self) -> None:
        """Let go of the file; a second time it does nothing."""
        if not self._closed:
            self._closed = True
            self._database.close()


class SqlView:
    """The store at one moment: a connection in a read transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def log_end(self) -> int:
        return queries.last_log(self._connection)

    def mark(self) -> str:
        return changes.mark(self._connection)

    # --- runs ---

    def run(self, run_id: str) -> Run | None:
        return queries.get(self._connection, run_id)

    def run_page(
        self, query: RunQuery, limit: int, below: str | None = None, above: str | None = None
    ) -> RunPage:
        return run_views.run_page(self._connection, query, limit, below, above)

    def matching_runs(self, query: RunQuery, limit: int) -> list[str]:
        return run_views.matching(self._connection, query, limit)

    def open_versions(self) -> list[OpenVersion]:
        return run_views.open_versions(self._connection)

    def run_input(self, run_id: str) -> bytes:
        return run_views.run_input(self._connection, run_id)

    def journal(self, run_id: str) -> list[JournalRow]:
        return journal_views.rows(self._connection, run_id)

    def payload(self, run_id: str, seq: int, start: int, limit: int) -> Payload | None:
        return journal_views.payload(self._connection, run_id, seq, start, limit)

    def published(self, run_id: str) -> list[Published]:
        return queries.published(self._connection, run_id)

    def queue_place(self, run_id: str) -> QueuePlace | None:
        return gathering.queue_place(self._connection, run_id)

    # --- approvals ---

    def approval(self, id: str, now: float) -> Approval | None:
        return approvals.get(self._connection, id, now)

    def approvals(
        self,
        status: ApprovalStatus | None,
        run_id: str | None,
        limit: int,
        before: str | None,
        now: float,
    ) -> list[Approval]:
        return approvals.listed(self._connection, status, run_id, limit, before, now)

    # --- model calls, and what they cost ---

    def call(self, id: str) -> Call | None:
        return call_views.call(self._connection, id)

    def call_row(self, id: str) -> CallRow:
        return call_views.row(self._connection, id)

    def call_page(self, which: CallFilter, limit: int, before: float | None) -> CallPage:
        return call_views.call_page(self._connection, which, limit, before)

    def calls_of_run(self, run_id: str) -> list[CallRow]:
        return call_views.of_run(self._connection, run_id)

    def first_call(self) -> float | None:
        return call_views.first_call(self._connection)

    def call_sums(self, since: float) -> list[Sum]:
        return call_views.sums(self._connection, since)

    def calls_over_time(self, since: float, width: float) -> list[Slice]:
        return call_views.over_time(self._connection, since, width)

    def limited_spend(self) -> list[Spend]:
        return call_views.limited(self._connection)

    def spent(self, scope: str) -> Spend:
        return call_views.spent(self._connection, scope)

    def spent_most(self, kind: str, limit: int) -> list[Spend]:
        return call_views.spent_most(self._connection, kind, limit)

    def call_totals(self, run_id: str) -> CallTotals:
        return ledger_rows.totals(self._connection, run_id)

    def call_totals_by_step(self, run_id: str) -> dict[str, CallTotals]:
        return ledger_rows.totals_by_step(self._connection, run_id)

    # --- what a run's steps did elsewhere ---

    def activity(self, run_id: str, limit: int) -> Activity:
        return activity.of_run(self._connection, run_id, limit)

    def activity_sums(self, run_id: str) -> Sums:
        return activity.sums(self._connection, run_id)

    def activity_calls(self, run_id: str, after: str | None, limit: int) -> ActivityPage[CallRow]:
        return activity.calls(self._connection, run_id, after, limit)

    def activity_sandboxes(
        self, run_id: str, after: str | None, limit: int
    ) -> ActivityPage[SandboxRecord]:
        return activity.sandboxes(self._connection, run_id, after, limit)

    def activity_commands(
        self, run_id: str, after: str | None, limit: int
    ) -> ActivityPage[CommandRecord]:
        return activity.commands(self._connection, run_id, after, limit)

    # --- sandboxes ---

    def sandbox_list(self, live: bool | None, limit: int, below: str | None) -> SandboxList:
        return sandbox_views.sandbox_list(self._connection, live, limit, below)

    def sandbox_detail(
        self, id: str, limit: int, command: str | None, egress: int | None
    ) -> SandboxDetail | None:
        return sandbox_views.sandbox_detail(self._connection, id, limit, command, egress)

    def step_work(self, run_id: str, step_key: str) -> StepWork:
        return sandbox_views.of_step(self._connection, run_id, step_key)


class SqliteView(SqlView):
    """The same of a file."""

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection)
        self._path = path

    def state(self, now: float) -> StoreState:
        return worker_views.state(self._connection, self._path, now)
