"""The embedded store: one SQLite file, shared by any number of processes on a machine.

`SqlStore` only carries calls to where they are done: writes and reads to the database, news to the
other processes. What the calls do is in the modules it names, one noun each. `SqliteStore` is that
with a file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError, StoreError
from holdfast.records import Chunk, Event, Run, Worker
from holdfast.records.approvals import Approval, ApprovalStatus, Verdict
from holdfast.records.flow import QueuePlace
from holdfast.records.live import Published, UpdateRecord
from holdfast.records.schedules import Firing, FiringOutcome, Schedule
from holdfast.records.subscriptions import Reaction, Subscription
from holdfast.store.base import Append, Change, Claim, Created, Mail, NewRun, Page, RunFilter
from holdfast.store.connection import Connection
from holdfast.store.retention import Hold, Kept
from holdfast.store.schedules import ScheduleChange
from holdfast.store.sqlite import (
    approvals,
    deletion,
    events,
    gathering,
    journal,
    leases,
    mailbox,
    projections,
    queries,
    retention,
    run_control,
    schedules,
    schema,
    subscriptions,
    updates,
)
from holdfast.store.sqlite.database import Database, Own, Transaction, nothing
from holdfast.store.sqlite.wake import Wake, Wakes
from holdfast.store.sqlite.writer import LoopWriter, Writer
from holdfast.store.subscriptions import Dealt, News

T = TypeVar("T")


def _ignore(_change: Change | None) -> None:
    return


class SqlStore:
    """A Store in a database; `process` identifies this process among those that share it."""

    def __init__(self, name: str, process: str, clock: Clock) -> None:
        self.name = name
        self._process = process
        self.clock: Clock = clock
        self.on_change: Callable[[Change | None], None] = _ignore
        self._writer: Writer | None = None
        self._wake: Wakes | None = None

    def _connect(self) -> Database:
        raise NotImplementedError

    def _listen(self) -> Wakes | None:
        """Begin to listen to the other processes, as far as that is possible."""
        raise NotImplementedError

    async def open(self) -> None:
        """Open (and make, and migrate) the store; begin to listen to the other processes."""
        database = self._connect()
        try:
            await asyncio.wrap_future(database.write(nothing))
        except BaseException:
            await asyncio.to_thread(database.close)
            raise
        self._database = database
        self._writer = LoopWriter(database, self._committed)
        self._wake = self._listen()

    async def close(self) -> None:
        """Write what is pending, and let go of the store."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        await writer.close()
        if self._wake is not None:
            self._wake.close()
        await asyncio.to_thread(self._database.close)

    def _committed(self, change: Change) -> None:
        self._tell_others()
        self.on_change(change)

    def _tell_others(self) -> None:
        if self._wake is not None:
            self._wake.tell()

    # --- how things get done ---

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(value: T, error: HoldfastError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self._submit(operation, done)
        return await future

    def _submit(
        self,
        operation: Callable[[Transaction], T],
        done: Callable[[T, HoldfastError | None], None],
    ) -> None:
        if self._writer is None:
            raise StoreError(f"{self.name} is closed")
        self._writer.submit(operation, done)

    def _write_apart(self, operation: Callable[[Transaction], None]) -> None:
        """Write from another thread while the loop, which the writer speaks to, is held up."""
        try:
            self._database.write(operation).result()
        finally:
            if self._wake is not None:
                self._wake.tell_from_thread()

    async def _read(self, question: Callable[[Connection], T]) -> T:
        if self._writer is None:
            raise StoreError(f"{self.name} is closed")
        return await asyncio.wrap_future(self._database.read(question))

    # --- the journal ---

    def append(self, append: Append) -> None:
        self._submit(journal.Appending(append), append.settle)

    async def load(self, run_id: str) -> list[Event]:
        return await self._read(lambda c: events.load(c, run_id))

    async def last_event(self, run_id: str) -> Event:
        return await self._read(lambda c: events.last_event(c, run_id))

    async def keep_blob(self, run_id: str, data: bytes) -> str:
        return await self._write(Own((run_id,), lambda tx: events.keep_blob(tx, run_id, data)))

    async def blob(self, run_id: str, name: str) -> bytes:
        return await self._read(lambda c: events.blob(c, run_id, name))

    # --- ownership ---

    async def create(self, new: NewRun, worker: Worker | None) -> Created:
        return await self._write(leases.Creating(new, worker, self._moment))

    def _moment(self) -> leases.Moment:
        clock = self.clock
        return leases.Moment(clock.now(), clock.steady(), clock.boot)

    async def lost_workers(self, me: str) -> list[str]:
        """Workers whose process is gone, or whose lease has run out."""
        now = self._moment()
        expired = await self._read(lambda c: leases.expired(c, me, now))
        gone = self._wake.dead() if self._wake is not None else []
        return list(dict.fromkeys([*expired, *gone]))

    async def claim(
        self,
        worker: Worker,
        workflows: Sequence[str],
        limit: int,
        lost: Sequence[str],
        versions: Mapping[str, str] | None = None,
    ) -> list[Claim]:
        wanted = leases.Wanted(workflows, limit, versions or {})
        claims = await self._write(self._claiming(worker, wanted, self._moment(), lost))
        if self._wake is not None:
            self._wake.forget(lost)
        return claims

    async def renew(self, worker: Worker) -> None:
        await self._write(Own((), lambda tx: leases.lease(tx, worker, self._moment())))

    def renew_apart(self, worker: Worker) -> None:
        self._write_apart(Own((), lambda tx: leases.lease(tx, worker, self._moment())))

    def park_apart(self, run_id: str, fence: int, facts: dict[str, Any], at: float) -> None:
        def operation(tx: Transaction) -> None:
            leases.check_fence(tx, run_id, fence)
            run_control.park(tx, run_id, facts, at)

        self._write_apart(operation)

    def _claiming(
        self, worker: Worker, wanted: leases.Wanted, now: leases.Moment, lost: Sequence[str]
    ) -> Callable[[Transaction], list[Claim]]:
        return lambda tx: leases.claim(tx, worker, wanted, now, lost)

    async def keep_due(self, before: float) -> None:
        await self._write(lambda tx: leases.keep_due(tx, before, self.clock.now()))

    async def release(self, run_id: str, fence: int, due_at: float | None) -> bool:
        now = self.clock.now()
        operation = Own((run_id,), lambda tx: leases.release(tx, run_id, fence, due_at, now))
        return await self._write(operation)

    async def retire(self, worker_id: str) -> None:
        await self._write(lambda tx: leases.retire(tx, worker_id, self.clock.now()))

    async def next_due(
        self, me: str, workflows: Sequence[str], versions: Mapping[str, str] | None = None
    ) -> float | None:
        return await self._read(lambda c: leases.next_due(c, me, workflows, versions or {}))

    async def park(self, run_id: str, fence: int, facts: dict[str, Any], at: float) -> None:
        def operation(tx: Transaction) -> None:
            leases.check_fence(tx, run_id, fence)
            run_control.park(tx, run_id, facts, at)

        await self._write(operation)

    # --- mail ---

    async def mail(self, worker_id: str) -> list[Mail]:
        return await self._read(lambda c: mailbox.mail(c, worker_id))

    async def drop_mail(self, ids: Sequence[int]) -> None:
        await self._write(Own((), lambda tx: mailbox.drop_mail(tx, ids), mail=ids))

    async def send(
        self, name: str, payload: bytes, event_id: str, run_id: str | None, at: float
    ) -> bool:
        return await self._write(lambda tx: mailbox.send(tx, name, payload, event_id, run_id, at))

    async def webhook(self, token: str) -> tuple[str, str] | None:
        sql = "SELECT run_id, name FROM webhooks WHERE token = ?"
        return await self._read(lambda c: c.execute(sql, (token,)).fetchone())

    async def send_update(
        self, run_id: str, name: str, payload: bytes, id: str, at: float
    ) -> UpdateRecord:
        return await self._write(lambda tx: updates.send(tx, run_id, name, payload, id, at))

    async def update(self, run_id: str, id: str) -> UpdateRecord | None:
        return await self._read(lambda c: updates.get(c, run_id, id))

    # --- steering ---

    async def request(
        self, run_id: str, kind: Literal["cancel", "pause", "terminate"], at: float
    ) -> None:
        await self._write(lambda tx: run_control.request(tx, run_id, kind, at))

    async def resume(self, run_id: str, at: float) -> None:
        await self._write(lambda tx: run_control.resume(tx, run_id, at))

    async def retry(self, run_id: str, at: float) -> None:
        await self._write(lambda tx: run_control.retry(tx, run_id, at))

    async def fork(self, new: NewRun, source: str, history: Sequence[Event]) -> Run:
        await self._write(lambda tx: run_control.fork(tx, new, source, history))
        return await self._existing(new.id)

    async def restore(self, run: Run, history: Sequence[Event]) -> None:
        await self._write(lambda tx: run_control.restore(tx, run, history))

    async def delete(self, run_id: str, at: float) -> list[str]:
        deleted = await self._write(lambda tx: deletion.delete(tx, run_id, at))
        await self.purge()
        return deleted

    async def purge(self) -> None:
        """Remove what is left of deleted runs, some at a time."""
        while await self._read(lambda c: c.execute("SELECT 1 FROM deleted LIMIT 1").fetchone()):
            await self._write(deletion.purge)

    # --- what is kept ---

    async def hold(self, hold: Hold) -> None:
        await self._write(lambda tx: retention.hold(tx, hold))

    async def release_hold(self, run_id: str) -> bool:
        return await self._write(lambda tx: retention.release(tx, run_id))

    async def holds(self) -> list[Hold]:
        return await self._read(retention.holds)

    async def over(self, kept: Kept, limit: int, after: str = "") -> list[str]:
        return await self._read(lambda c: retention.over(c, kept, limit, after))

    async def workflows(self) -> list[str]:
        return await self._read(retention.workflows)

    # --- schedules ---

    async def write_schedule(self, change: ScheduleChange) -> Schedule | None:
        return await self._write(lambda tx: schedules.write(tx, change))

    async def delete_schedule(self, name: str) -> bool:
        return await self._write(lambda tx: schedules.delete(tx, name))

    async def schedules(self, names: Sequence[str] | None = None) -> list[Schedule]:
        return await self._read(lambda c: schedules.schedules(c, names))

    async def due_schedules(
        self, workflows: Sequence[str], before: float, limit: int
    ) -> list[Schedule]:
        return await self._read(lambda c: schedules.due(c, workflows, before, limit))

    async def next_schedule(self, workflows: Sequence[str]) -> float | None:
        return await self._read(lambda c: schedules.next_due(c, workflows))

    async def used_keys(self, workflow: str, keys: Sequence[str]) -> set[str]:
        return await self._read(lambda c: schedules.used_keys(c, workflow, keys))

    async def firings(
        self, name: str, limit: int, outcome: FiringOutcome | None = None
    ) -> list[Firing]:
        return await self._read(lambda c: schedules.firings(c, name, limit, outcome))

    # --- events that start runs ---

    async def subscribe(self, workflow: str, reactions: Mapping[str, Reaction]) -> None:
        await self._write(lambda tx: subscriptions.subscribe(tx, workflow, reactions))

    async def subscriptions(self) -> list[Subscription]:
        return await self._read(subscriptions.subscriptions)

    async def news(self, workflows: Sequence[str], limit: int) -> list[News]:
        return await self._read(lambda c: subscriptions.news(c, workflows, limit))

    async def deal(self, dealt: Dealt) -> int:
        return await self._write(lambda tx: subscriptions.deal(tx, dealt))

    # --- approvals, and what must begin once ---

    async def add_approval(self, new: Approval) -> None:
        await self._write(lambda tx: approvals.add(tx, new))

    async def approval(self, id: str) -> Approval | None:
        return await self._read(lambda c: approvals.get(c, id, self.clock.now()))

    async def approvals(
        self, status: ApprovalStatus | None, run: str | None, limit: int, before: str | None
    ) -> list[Approval]:
        now = self.clock.now()
        return await self._read(lambda c: approvals.listed(c, status, run, limit, before, now))

    async def decide_approval(self, id: str, verdict: Verdict) -> Approval:
        return await self._write(lambda tx: approvals.decide(tx, id, verdict))

    async def lapse_approval(self, id: str, verdict: Verdict) -> Approval:
        return await self._write(lambda tx: approvals.lapse(tx, id, verdict))

    async def use_approval(self, id: str, step: str) -> Approval:
        return await self._write(lambda tx: approvals.use(tx, id, step, self.clock.now()))

    async def begin_once(self, run_id: str, key: str) -> bool:
        now = self.clock.now()
        operation = Own((run_id,), lambda tx: approvals.begin_once(tx, run_id, key, now))
        return await self._write(operation)

    async def secret(self, name: str) -> bytes:
        known = await self._read(lambda c: approvals.known_secret(c, name))
        if known is not None:
            return known
        fresh = os.urandom(32)
        return await self._write(lambda tx: approvals.secret(tx, name, fresh))

    # --- streams ---

    async def write_chunk(
        self, run_id: str, fence: int, stream: str, data: bytes, at: float, step: str, attempt: int
    ) -> int:
        def operation(tx: Transaction) -> int:
            leases.check_fence(tx, run_id, fence)
            return projections.write_chunk(tx, run_id, stream, data, at, step, attempt)

        return await self._write(Own((run_id,), operation))

    async def chunks(self, run_id: str, stream: str, start: int, limit: int) -> list[Chunk]:
        return await self._read(lambda c: queries.chunks(c, run_id, stream, start, limit))

    # --- questions ---

    async def held(self, worker_id: str) -> list[Claim]:
        return await self._read(lambda c: leases.held(c, worker_id))

    async def get(self, run_id: str) -> Run | None:
        return await self._read(lambda c: queries.get(c, run_id))

    async def queue_place(self, run_id: str) -> QueuePlace | None:
        return await self._read(lambda c: gathering.queue_place(c, run_id))

    async def published(self, run_id: str) -> list[Published]:
        return await self._read(lambda c: queries.published(c, run_id))

    async def _existing(self, run_id: str) -> Run:
        run = await self.get(run_id)
        assert run is not None, run_id
        return run

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None) -> Page:
        return await self._read(lambda c: queries.list_runs(c, where, limit, cursor))

    async def events(self, run_id: str, after: int, limit: int) -> list[Event]:
        return await self._read(lambda c: events.read(c, events.OF_RUN, (run_id, after, limit)))

    async def log(self, after: int, limit: int, run_id: str | None = None) -> list[Event]:
        if run_id is None:
            return await self._read(lambda c: events.read(c, events.OF_ALL_RUNS, (after, limit)))
        of_run = (run_id, after, limit)
        return await self._read(lambda c: events.read(c, events.OF_RUN_IN_LOG, of_run))

    async def log_end(self) -> int:
        """The place of the newest event in the log; 0 if there is none."""
        return await self._read(lambda c: c.execute(events.LOG_END).fetchone()[0])

    async def workers(self) -> list[Worker]:
        return await self._read(queries.workers)


class SqliteStore(SqlStore):
    """A Store in the file at `path`."""

    def __init__(self, path: Path, name: str, clock: Clock | None = None) -> None:
        super().__init__(str(path), name, clock or SystemClock())
        self.path = path

    def _connect(self) -> Database:
        return Database.open(self.path)

    def _listen(self) -> Wakes | None:
        try:
            return Wake(self.path, self._process, lambda: self.on_change(None))
        except OSError:
            # No place for sockets (a read-only /tmp, say): leases and looking now and then do
            # the same, only later.
            return None

    async def renew(self, worker: Worker) -> None:
        def operation(tx: Transaction) -> str:
            leases.lease(tx, worker, self._moment())
            return schema.advance_mark(tx.connection)

        mark = await self._write(operation)
        self._keep_mark(mark)

    def _keep_mark(self, mark: str) -> None:
        """How far the store has come, beside it; this process's stores in memory have no such."""
        schema.keep_mark(self.path, mark)

    async def vacuum(self) -> int:
        """Writers wait while the file is written anew; give it a quiet hour if it is large."""
        return await asyncio.to_thread(schema.vacuum, self.path)

    async def backup(self, target: Path) -> None:
        """A whole, consistent copy, while runs go on."""

        def copy(connection: Any) -> None:
            schema.make_private(target)
            destination: Any = sqlite3.connect(target)
            try:
                connection.backup(destination)
                # Put in the store's place it is not taken for the store without its log.
                destination.execute("UPDATE identity SET id = lower(hex(randomblob(16)))")
                destination.commit()
            finally:
                destination.close()

        await self._read(copy)
