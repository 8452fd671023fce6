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
import itertools
import json
import logging
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker as TemporalWorker

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StoreError
from holdfast.records import RUN_CANCELLED, Event, Worker
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.runtime.watchdog import IDLE_FACTOR
from holdfast.store.base import TERMINATED, Change, Claim, Mail, Store
from holdfast.temporal.hosted_run import LONGEST, HostedRun, Process, processes
from holdfast.temporal.messages import Begin, Letter, as_rows
from holdfast.temporal.mirror import LEAVES, Mirror
from holdfast.temporal.payloads import StoredPayloads
from holdfast.temporal.search_attributes import attributes_in, of_run, registered
from holdfast.temporal.server_address import ServerAddress, configured, connect
from holdfast.temporal.step_activity import Activities

log = logging.getLogger("holdfast")

ENDLESS = 1e10
"""Seconds of a lease that nobody has to renew: three hundred years."""
SOON = 0.2
PATIENCE = 10.0
"""The longest pause between two tries."""
LAST_WORDS = 15
"""How often to wait for the end of an earlier life of a run."""
OTHERS_FIRST = 1.0
"""How long mail of a run that another worker carries on is left to that worker."""
LOOK_SECONDS = 60.0
"""How often to compare the runs on Temporal, by the store, with what Temporal says."""


class _Found(NamedTuple):
    """What Temporal knows of a run."""

    fence: int | None
    is_open: bool
    life: str
    """Temporal's own id of it."""


class TemporalEngine(Engine):
    """An engine whose runs are carried out by Temporal. See the module's text."""

    def __init__(
        self, address: str, store: Store, *, settings: Settings, clock: Clock, **_worker: Any
    ) -> None:
        self.address = ServerAddress.parse(address)
        super().__init__(store, worker_id=self.address.owner, settings=settings, clock=clock)
        self._temporal = configured()
        self._payloads = StoredPayloads(store, settings.store_retry_seconds)
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._told: dict[int, str] = {}
        """Mail that was passed on and lies in the store until the run has dealt with it."""
        self._seen: dict[int, float] = {}
        """When mail was first found that is, most likely, another worker's to pass on."""

    async def open(self) -> None:
        self._client: Client = await connect(self.address, self._temporal, self._payloads)
        self._indexed = self._temporal.search_attributes and await registered(self._client)
        await super().open()
        self.mirror = Mirror(self.store, self._client, self._taken)
        process = Process(self.mirror, self.settings, self._temporal)
        self._place = (self.address.namespace, self.address.queue)
        processes[self._place] = process
        owner = self.address.owner
        self._activities = Activities(self, owner, self._client, self.mirror, process)
        self._worker: TemporalWorker | None = None
        self._working = asyncio.create_task(self._work_forever())
        self._comparing = asyncio.create_task(self._compare_forever())

    async def _work_forever(self) -> None:
        """Temporal's worker; one that fails is replaced, for the runs are still there."""
        pause = SOON
        while not self._closing:
            self._worker = self._new_worker()
            began = self.clock.steady()
            try:
                await self._worker.run()
            except Exception:
                log.exception("Temporal's worker has failed, beginning again")
                pause = SOON if self.clock.steady() - began > 60 else min(pause * 2, PATIENCE)
                await asyncio.sleep(pause)

    def _new_worker(self) -> TemporalWorker:
        settings = self._temporal
        worker = TemporalWorker(
            self._client,
            task_queue=self.address.queue,
            workflows=[HostedRun],
            activities=[self._activities.step, self._activities.record],
            max_cached_workflows=settings.cached_runs,
            max_concurrent_activities=settings.concurrent_steps,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_seconds),
            max_heartbeat_throttle_interval=timedelta(seconds=2),
            default_heartbeat_throttle_interval=timedelta(seconds=2),
            # Steps are given their time, and then stopped, by `close`.
            graceful_shutdown_timeout=LONGEST,
        )
        # Two seconds by default, whoever the processor works for: on a busy machine the first task
        # of a run takes that long, for what it imports. It is no setting of theirs (yet).
        hosting: Any = worker._workflow_worker  # pyright: ignore[reportPrivateUsage]
        hosting._deadlock_timeout_seconds = self.settings.body_seconds * IDLE_FACTOR
        return worker

    async def close(self, grace: float = 0.0) -> None:
        self._closing = True
        self._comparing.cancel()
        await asyncio.wait({self._comparing})
        finishing = asyncio.create_task(self._activities.finish(grace))
        if self._worker is not None and self._worker.is_running:
            await self._worker.shutdown()
        self._working.cancel()
        await asyncio.wait({self._working, finishing})
        self._payloads.closed = True
        for task in list(self._starting.values()):
            task.cancel()
        processes.pop(self._place, None)
        await self.mirror.close()
        await super().close(grace)

    async def _retire(self) -> None:
        """Nothing is given back: the runs are Temporal's, and other workers go on with them."""

    @property
    def in_hand(self) -> Collection[str]:
        return self.mirror.in_hand

    def _taken(self, run_id: str) -> None:
        for taker in self.takers:
            taker.add(run_id)

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
        pause = SOON
        for attempt in itertools.count():
            try:
                found = await self._found(claim.run.id)
                if found is not None and found.fence == claim.fence:
                    return  # by whomever, and even if it has ended
                if found is not None and found.is_open and attempt >= LAST_WORDS:
                    await self._end_earlier_life(claim, found)
                if await self._started(claim, journal):
                    return
            except RPCError as error:
                log.error("%s can't be started, trying again: %s", claim.run.id, error)
                pause = min(pause * 2, PATIENCE)
                if "search attribute" in str(error).lower():
                    self._indexed = False
            await asyncio.sleep(pause)

    async def _started(self, claim: Claim, journal: list[Event]) -> bool:
        run, temporal = claim.run, self._temporal
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
            history_events=temporal.history_events,
            history_megabytes=temporal.history_megabytes,
            indexed=self._indexed and temporal.encryption_key is None,
        )
        memo: dict[str, Any] = {"holdfast": {"fence": claim.fence, "version": run.version}}
        if run.key is not None:
            memo["key"] = run.key
        attributes = attributes_in(journal)
        if attributes:
            memo["attributes"] = attributes
        private = temporal.encryption_key is not None
        found_by = of_run(run, journal[0], private=private) if self._indexed else None
        try:
            await self._client.start_workflow(
                run.workflow,
                begin,
                id=run.id,
                task_queue=self.address.queue,
                memo=memo,
                search_attributes=found_by,
                static_summary=run.workflow if run.key is None else f"{run.workflow} {run.key}",
            )
        except WorkflowAlreadyStartedError:
            return False  # by another worker, or an earlier life of it is about to end
        return True

    async def _end_earlier_life(self, claim: Claim, found: _Found) -> None:
        """It has said its last word, or the run could not have been claimed, but it does not end:
        the code that it began with is gone, say."""
        log.warning("an earlier life of %s does not end by itself", claim.run.id)
        handle = self._client.get_workflow_handle(claim.run.id, run_id=found.life)
        await handle.terminate(reason="the run went on, by what the store says")

    async def _found(self, run_id: str) -> _Found | None:
        """What Temporal knows of a run: its last life."""
        try:
            found = await self._client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        fence = (await found.memo()).get("holdfast", {}).get("fence")
        return _Found(fence, found.status == WorkflowExecutionStatus.RUNNING, found.run_id)

    # --- what Temporal says of them ---

    async def _compare_forever(self) -> None:
        """At first, for what a worker has left that died, and then now and again."""
        first = True
        while True:
            try:
                for claim in await self.store.held(self._id):
                    if claim.run.id not in self._starting:
                        await self._compare(claim, heal=first)
                first = False
            except (RPCError, WorkflowQueryFailedError, StoreError) as error:
                log.error("the runs on Temporal can't be looked at, trying again: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self, claim: Claim, *, heal: bool) -> None:
        """Start a run whose worker died before it had; end one that Temporal has ended."""
        run_id = claim.run.id
        found = await self._found(run_id)
        run = await self.store.get(run_id)  # asked last: a run ends in the store first
        if run is None or run.owner != self._id or run_id in self._starting:
            return
        if found is None or found.fence != claim.fence:
            self._activate(claim, await self.store.load(run_id))
            return
        if found.is_open and not heal:
            return
        last = await self.mirror.heal(run_id, claim.fence)
        if found.is_open or last.type in LEAVES:
            return
        log.warning("%s was ended by Temporal's means", run_id)
        facts = json.dumps({**TERMINATED, "at_once": True})
        at = max(self.clock.now(), last.at)
        ended = Event(run_id, last.seq + 1, RUN_CANCELLED, "", at, facts)
        await self.mirror.append(run_id, claim.fence, [ended])

    # --- mail ---

    async def _fetch_mail(self) -> None:
        lying: set[int] = set()
        try:
            for mail in await self.store.mail(self._id):
                lying.add(mail.id)
                if mail.id not in self._told and mail.run_id not in self._starting:
                    await self._pass_on(mail)
        except HoldfastError:
            self._mail = True  # nobody tells us of this mail again
            raise
        self._told = {mail: told for mail, told in self._told.items() if mail in lying}
        self._seen = {mail: seen for mail, seen in self._seen.items() if mail in lying}

    async def _pass_on(self, mail: Mail) -> None:
        """At once if the run is carried on here; else its own worker does it, if it is alive."""
        if mail.run_id not in self.mirror.in_hand:
            now = self.clock.steady()
            if now < self._seen.setdefault(mail.id, now) + OTHERS_FIRST:
                self.clock.call_after(OTHERS_FIRST, self.look_for_mail)
                return
        await self._tell(mail)

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
