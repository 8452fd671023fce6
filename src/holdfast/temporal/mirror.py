"""The mirror: each run's journal, copied to the store once Temporal has it.

What a run records is only true once the server has accepted the task it was recorded in: a worker
that dies before that leaves no trace, and the next one may record something else. So the workflow
hands its events over as they come, and they are written when something shows that they were
accepted: an activity that was scheduled behind them, a later task of the same run, or, if neither
comes within a moment (a run that sleeps), the workflow's own answer. What a process that died has
left out is fetched from the workflow, whose replay knows it all.

Everything follows from what is written: the run's status, waits, mail for others, children, the
next run in a lane. That is the store's business, as for any other worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.records import RUN_ENDS, RUN_PAUSED, RUN_STUCK, Event
from holdfast.store.base import Append, Store
from holdfast.temporal.messages import Recorded, Row, from_rows

log = logging.getLogger("holdfast")

MOST_COPIES = 10_000
"""Runs whose place in the store is remembered."""
QUIET_SECONDS = 0.5
"""A run that has recorded nothing for so long is asked how far Temporal has it."""
LONGEST_PAUSE = 30.0
LEAVES = RUN_ENDS | {RUN_STUCK, RUN_PAUSED}
"""With these a run leaves Temporal, if only for a while."""


class Sink(Protocol):
    """Where a workflow's events go, from whatever thread it is driven in."""

    def note(self, run_id: str, fence: int, events: list[Event]) -> None:
        """Events that were recorded, in order; the same ones again after a replay."""
        ...

    def accepted(self, run_id: str, fence: int, seq: int) -> None:
        """Up to there, Temporal has them."""
        ...

    def refused(self, mail_id: int) -> None:
        """A piece of mail that the run has no use for."""
        ...


class _Copy:
    """One run's journal on its way to the store."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.events: dict[int, Event] = {}
        """Those that are not written yet."""
        self.accepted = 0
        self.written: int | None = None
        """How far the store has come; None until it was asked."""
        self.lock = asyncio.Lock()
        self.asking: asyncio.TimerHandle | None = None

    @property
    def newest(self) -> int:
        return max(self.events, default=0)


class Mirror:
    """Copies the journals of this process's runs. Lives on the worker's loop."""

    def __init__(self, store: Store, client: Client, taken: Callable[[str], None]) -> None:
        """`taken`: told the id of each run that is carried on here."""
        self._store, self._client, self._taken = store, client, taken
        self._copies: dict[str, _Copy] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    # --- from the workflows' threads ---

    def note(self, run_id: str, fence: int, events: list[Event]) -> None:
        self._soon(lambda: self._note(run_id, fence, events))

    def accepted(self, run_id: str, fence: int, seq: int) -> None:
        self._soon(lambda: self._accepted(run_id, fence, seq))

    def refused(self, mail_id: int) -> None:
        self._soon(lambda: self._run(self._drop(mail_id)))

    async def _drop(self, mail_id: int) -> None:
        try:
            await self._store.drop_mail([mail_id])
        except HoldfastError as error:  # it is offered again, and refused again
            log.warning("mail %s is not thrown away yet: %s", mail_id, error)

    def _soon(self, action: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    # --- on the worker's loop ---

    @property
    def in_hand(self) -> Collection[str]:
        """The runs that are, or were a while ago, carried on in this process."""
        return self._copies

    def _copy(self, run_id: str, fence: int) -> _Copy:
        copy = self._copies.get(run_id)
        if copy is None or copy.fence < fence:
            if len(self._copies) >= MOST_COPIES:
                self._forget_idle()
            copy = self._copies[run_id] = _Copy(fence)
        return copy

    def _forget_idle(self) -> None:
        idle = [run_id for run_id, copy in self._copies.items() if not copy.events]
        for run_id in idle:
            del self._copies[run_id]

    def _note(self, run_id: str, fence: int, events: list[Event]) -> None:
        is_new = run_id not in self._copies
        copy = self._copy(run_id, fence)
        if copy.fence != fence:
            return
        written = copy.written or 0
        copy.events.update((event.seq, event) for event in events if event.seq > written)
        if is_new:
            self._taken(run_id)
        self._ask_later(run_id, copy, QUIET_SECONDS)

    def _accepted(self, run_id: str, fence: int, seq: int) -> None:
        copy = self._copies.get(run_id)
        if copy is None or copy.fence != fence or seq <= copy.accepted or self._closed:
            return  # the run is carried on elsewhere, and so is its copy
        copy.accepted = seq
        self._run(self._write_quietly(run_id, copy))

    def _ask_later(self, run_id: str, copy: _Copy, pause: float) -> None:
        if copy.asking is None and not self._closed:
            ring = self._loop.call_later
            copy.asking = ring(pause, self._if_quiet, run_id, copy, copy.newest, pause)

    def _if_quiet(self, run_id: str, copy: _Copy, newest: int, pause: float) -> None:
        copy.asking = None
        if self._copies.get(run_id) is not copy or copy.newest <= copy.accepted or self._closed:
            return
        if copy.newest != newest:  # it goes on: what comes next will show it
            self._ask_later(run_id, copy, QUIET_SECONDS)
        else:
            asking = self._loop.create_task(self._ask(run_id, copy, pause))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _ask(self, run_id: str, copy: _Copy, pause: float) -> None:
        """Have the run itself say how far Temporal has it."""
        handle = self._client.get_workflow_handle(run_id)
        try:
            place: Recorded | None = await handle.query(
                "place", result_type=Recorded, rpc_timeout=timedelta(seconds=10)
            )
        except (RPCError, WorkflowQueryFailedError) as error:
            if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
                return
            log.debug("%s does not say how far it has come: %s", run_id, error)
            place = None
        if place is not None and place.fence == copy.fence:
            self._accepted(run_id, place.fence, place.seq)
        else:
            self._ask_later(run_id, copy, min(pause * 2, LONGEST_PAUSE))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_quietly(self, run_id: str, copy: _Copy) -> None:
        """Write what can be; whoever depends on it asks for it by `record`."""
        try:
            await self._write(run_id, copy, copy.accepted)
        except LeaseLost as lost:
            log.info("%s", lost)
            if self._copies.get(run_id) is copy:
                del self._copies[run_id]
        except HoldfastError as error:
            log.warning("%s is not copied to the store yet: %s", run_id, error)

    async def record(self, told: Recorded) -> None:
        """Have the store know a run's journal up to a place, whatever happened before."""
        copy = self._copy(told.run_id, told.fence)
        if copy.fence > told.fence:
            return  # the run is in other hands by now, and so is its journal
        copy.accepted = max(copy.accepted, told.seq)
        try:
            if await self._write(told.run_id, copy, told.seq) < told.seq:
                await self._fetch(told, copy)
                await self._write(told.run_id, copy, told.seq)
        except LeaseLost as lost:
            log.info("%s", lost)

    async def heal(self, run_id: str, fence: int) -> Event:
        """Fetch what the store has not been told, if anything: the run's last event."""
        last = await self._store.last_event(run_id)
        handle = self._client.get_workflow_handle(run_id)
        rows: list[Row] = await handle.query("journal", last.seq, result_type=list[Row])
        missing = from_rows(run_id, rows)
        if not missing:
            return last
        copy = self._copy(run_id, fence)
        copy.events.update((event.seq, event) for event in missing)
        copy.accepted = max(copy.accepted, missing[-1].seq)
        await self._write(run_id, copy, missing[-1].seq)
        return missing[-1]

    async def _fetch(self, told: Recorded, copy: _Copy) -> None:
        """Ask the workflow for what this process has not seen."""
        handle = self._client.get_workflow_handle(told.run_id)
        rows: list[Row] = await handle.query("journal", copy.written or 0, result_type=list[Row])
        for event in from_rows(told.run_id, rows):
            if event.seq <= told.seq:
                copy.events.setdefault(event.seq, event)

    async def _write(self, run_id: str, copy: _Copy, upto: int) -> int:
        """Write what is there, in order, without a gap; how far the store has come."""
        async with copy.lock:
            try:
                return await self._write_on(run_id, copy, upto)
            except LeaseLost:
                raise
            except HoldfastError:
                copy.written = None  # another process may have been quicker: look again
                return await self._write_on(run_id, copy, upto)

    async def _write_on(self, run_id: str, copy: _Copy, upto: int) -> int:
        if copy.written is None:
            copy.written = (await self._store.last_event(run_id)).seq
        written = copy.written
        for seq in [seq for seq in copy.events if seq <= written]:
            del copy.events[seq]
        batch: list[Event] = []
        while written + len(batch) < upto:
            event = copy.events.get(written + len(batch) + 1)
            if event is None:
                break
            batch.append(event)
        if batch:
            await self.append(run_id, copy.fence, batch)
            copy.written = batch[-1].seq
            for event in batch:
                del copy.events[event.seq]
            if batch[-1].type in LEAVES and self._copies.get(run_id) is copy:
                del self._copies[run_id]
        return copy.written

    async def append(self, run_id: str, fence: int, events: list[Event]) -> None:
        """Write events, and wait until they are on disk."""
        done: asyncio.Future[None] = self._loop.create_future()

        def settled(_append: Append, error: HoldfastError | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._store.append(Append(run_id, fence, events, settled))
        await done

    async def close(self) -> None:
        """Finish what is being written."""
        self._closed = True
        for copy in self._copies.values():
            if copy.asking is not None:
                copy.asking.cancel()
        for asking in self._asking:
            asking.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


class Nowhere:
    """For replays that nobody wants to keep: Temporal's own Replayer."""

    def note(self, run_id: str, fence: int, events: list[Event]) -> None:
        return

    def accepted(self, run_id: str, fence: int, seq: int) -> None:
        return

    def refused(self, mail_id: int) -> None:
        return
