"""The worker on Temporal: between the store, where runs are asked for, and the server.

To everybody else it is an engine like the local one. It claims runs in the store, schedules and
event starts included, but instead of carrying them out it starts a Temporal workflow for each, and
passes on what is left in their mailboxes. All workers of a task queue own their runs in the store
together, under one name and by a lease without end: whether a run goes on is Temporal's business.

Several processes may do this at once. What they do twice is harmless: a workflow has the run's
id, and a run looks at each piece of mail once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker as TemporalWorker

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.records import RUN_CANCELLED, Event, Worker
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store.base import TERMINATED, Change, Claim, Mail, Store
from holdfast.temporal.hosted_run import HostedRun, Process, processes
from holdfast.temporal.messages import Begin, Letter, as_rows
from holdfast.temporal.mirror import Mirror
from holdfast.temporal.server_address import ServerAddress, configured, connect
from holdfast.temporal.step_activity import Activities

log = logging.getLogger("holdfast")

ENDLESS = 1e10
"""Seconds of a lease that nobody has to renew: three hundred years."""
SOON = 0.2
LOOK_SECONDS = 60.0
"""How often to compare the runs on Temporal, by the store, with what Temporal says."""


class TemporalEngine(Engine):
    """An engine whose runs are carried out by Temporal. See the module's text."""

    def __init__(
        self, address: str, store: Store, *, settings: Settings, clock: Clock, **_worker: Any
    ) -> None:
        self.address = ServerAddress.parse(address)
        super().__init__(store, worker_id=self.address.owner, settings=settings, clock=clock)
        self._temporal = configured()
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._told: dict[int, str] = {}
        """Mail that was passed on and lies in the store until the run has dealt with it."""

    async def open(self) -> None:
        self._client: Client = await connect(self.address, self._temporal)
        await super().open()
        self.mirror = Mirror(self.store, self._client)
        process = Process(self.mirror, self.settings, self._temporal)
        self._place = (self.address.namespace, self.address.queue)
        processes[self._place] = process
        activities = Activities(self, self._client, self.mirror, process)
        self._worker = TemporalWorker(
            self._client,
            task_queue=self.address.queue,
            workflows=[HostedRun],
            activities=[activities.step, activities.record],
            max_cached_workflows=self._temporal.cached_runs,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=self._temporal.sticky_seconds),
            max_heartbeat_throttle_interval=timedelta(seconds=2),
            default_heartbeat_throttle_interval=timedelta(seconds=2),
            graceful_shutdown_timeout=timedelta(seconds=0),
        )
        self._working = asyncio.create_task(self._worker.run())
        self._comparing = asyncio.create_task(self._compare_forever())

    async def close(self, grace: float = 0.0) -> None:
        self._comparing.cancel()
        await asyncio.wait({self._comparing})
        await self._worker.shutdown()
        await asyncio.wait({self._working})
        for task in list(self._starting.values()):
            task.cancel()
        processes.pop(self._place, None)
        await self.mirror.close()
        await super().close(grace)

    async def _retire(self) -> None:
        """Nothing is given back: the runs are Temporal's, and other workers go on with them."""

    @property
    def me(self) -> Worker:
        lease = ENDLESS
        expires = self.clock.now() + lease
        return Worker(self._id, 0, self.address.host, self._began, expires, lease_seconds=lease)

    # --- what others tell ---

    def _changed(self, change: Change | None) -> None:
        if change is not None and change.mail:
            self.look_for_mail()
        super()._changed(change)

    # --- starting ---

    def _activate(self, claim: Claim, journal: list[Event]) -> None:
        for taker in self.takers:
            taker.add(claim.run.id)
        run_id = claim.run.id
        # What was told to an earlier life of it, and lies there still, is for this one.
        self._told = {mail: told for mail, told in self._told.items() if told != run_id}
        task = asyncio.get_running_loop().create_task(self._start(claim, journal))
        self._starting[run_id] = task
        task.add_done_callback(lambda _task: self._was_started(run_id))

    def _was_started(self, run_id: str) -> None:
        del self._starting[run_id]
        self.look_for_mail()

    async def _start(self, claim: Claim, journal: list[Event]) -> None:
        """Start the run's workflow, however long Temporal can't be reached."""
        while True:
            try:
                if await self._started(claim, journal):
                    return
            except RPCError as error:
                log.error("%s can't be started, trying again: %s", claim.run.id, error)
            await asyncio.sleep(SOON)

    async def _started(self, claim: Claim, journal: list[Event]) -> bool:
        run = claim.run
        begin = Begin(
            run.id,
            run.workflow,
            run.version,
            claim.fence,
            run.created_at,
            run.started_at or run.created_at,
            run.timeout,
            run.deadline,
            secrets.token_urlsafe(32),
            as_rows(journal),
        )
        memo = {"holdfast": {"fence": claim.fence, "version": run.version}}
        if run.key is not None:
            memo["key"] = run.key  # pyright: ignore[reportArgumentType]
        try:
            await self._client.start_workflow(
                run.workflow,
                begin,
                id=run.id,
                task_queue=self.address.queue,
                memo=memo,
                static_summary=run.workflow,
            )
        except WorkflowAlreadyStartedError:
            return await self._is_there(claim)
        return True

    async def _is_there(self, claim: Claim) -> bool:
        """Whether the workflow that is there is this life of the run's, not one about to end."""
        handle = self._client.get_workflow_handle(claim.run.id)
        found = await handle.describe()
        if found.status != WorkflowExecutionStatus.RUNNING:
            return False
        return (await found.memo()).get("holdfast", {}).get("fence") == claim.fence

    # --- what Temporal says of them ---

    async def _compare_forever(self) -> None:
        """At first, for what a worker has left that died, and then now and again."""
        while True:
            try:
                for claim in await self.store.held(self._id):
                    if claim.run.id not in self._starting:
                        await self._compare(claim)
            except (RPCError, StoreError) as error:
                log.error("the runs on Temporal can't be looked at, trying again: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self, claim: Claim) -> None:
        """Start a run whose worker died before it had; end one that Temporal has ended."""
        run_id = claim.run.id
        try:
            found = await self._client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            fence, is_open = None, False
        else:
            fence = (await found.memo()).get("holdfast", {}).get("fence")
            is_open = found.status == WorkflowExecutionStatus.RUNNING
        run = await self.store.get(run_id)  # asked last: a run ends in the store first
        if is_open or run is None or run.owner != self._id or run_id in self._starting:
            return
        if fence != claim.fence:
            self._activate(claim, await self.store.load(run_id))
            return
        log.warning("%s was ended by Temporal's means", run_id)
        last = await self.store.last_event(run_id)
        facts = json.dumps({**TERMINATED, "at_once": True})
        at = max(self.clock.now(), last.at)
        ended = Event(run_id, last.seq + 1, RUN_CANCELLED, "", at, facts)
        await self.mirror.append(run_id, claim.fence, [ended])

    # --- mail ---

    async def _fetch_mail(self) -> None:
        lying: set[int] = set()
        for mail in await self.store.mail(self._id):
            lying.add(mail.id)
            if mail.id not in self._told and mail.run_id not in self._starting:
                await self._tell(mail)
        self._told = {mail: told for mail, told in self._told.items() if mail in lying}

    async def _tell(self, mail: Mail) -> None:
        handle = self._client.get_workflow_handle(mail.run_id)
        try:
            if mail.kind == "cancel":
                await handle.cancel()
            else:
                await handle.signal("mail", Letter.of(mail))
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return  # it has just ended: its last word is on its way to the store
            raise StoreError(f"Temporal did not take mail for {mail.run_id}: {error}") from error
        self._told[mail.id] = mail.run_id


make_engine = TemporalEngine
"""What `runtime/app.py` looks for in the module of an engine."""
