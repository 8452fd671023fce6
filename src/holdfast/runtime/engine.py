"""The engine: a worker that claims runs, carries them on, and gives them back.

It owns what the runs share: the store, the clock, the threads, the lease. Several engines, in
one process or many, may share a store; the store sees to it that a run is in one hand.

One task tends to everything that is not prompted by a run itself: claiming what is due, fetching
mail, renewing the lease, taking over from workers that died, giving back runs that only wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import os
import platform
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast import session
from holdfast.clock import JUMP_SECONDS, Clock, SystemClock, offset
from holdfast.errors import CorruptEvent, HoldfastError, StoreError
from holdfast.ids import derived_id, new_id, new_token
from holdfast.records import RUN_PAUSED, ErrorInfo, Event, Worker
from holdfast.runtime import guard
from holdfast.runtime.active import ActiveRun, Work
from holdfast.runtime.commands import StepCall
from holdfast.runtime.definitions import Step, Workflow, find_workflow, registered
from holdfast.runtime.event_starts import EventStarts
from holdfast.runtime.history import Retrying
from holdfast.runtime.loop import keep_generators
from holdfast.runtime.notifications import Watchers
from holdfast.runtime.scheduler import Scheduler
from holdfast.runtime.settings import Settings
from holdfast.runtime.steps import StepWork
from holdfast.runtime.threads import Threads
from holdfast.runtime.watchdog import BodyWatch, Watchdog
from holdfast.store.base import Change, Claim, Created, NewRun, Store

log = logging.getLogger("holdfast")


@dataclasses.dataclass(frozen=True)
class Failure:
    """What an `on_failure` workflow is told."""

    run_id: str
    workflow: str
    error_type: str
    error_message: str


def described_handler(
    workflow: Workflow[..., Any], run_id: str, info: ErrorInfo
) -> dict[str, Any] | None:
    """The run of a workflow's `on_failure`, as the last event of a failed run describes it."""
    handler = workflow.on_failure
    if handler is None:
        return None
    failure = Failure(run_id, workflow.name, info.type, info.message)
    input = handler.signature.encode_arguments((failure,), {})
    handler_id = derived_id("run", run_id, "on_failure")
    return handler.described(handler_id, input, (failure,), {}, run_id)


class Engine:
    """A worker on a store. See the module's text."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        workflows: Mapping[str, Workflow[..., Any]] | None = None,
        luck: Callable[[], float] = random.random,
        substitute: Callable[[Step[..., Any]], Callable[..., Any] | None] = lambda _step: None,
        works: bool = True,
    ) -> None:
        self.store = store
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.luck = luck
        self.substitute = substitute
        """What tests run in a step's stead: an async function, or None for the step itself."""
        self.threads = Threads(self.settings.threads)
        self.watchers = Watchers(store)
        self.works = works
        """Whether runs are carried out here, or only started and watched."""
        self.runs: dict[str, ActiveRun] = {}
        self.takers: list[set[str]] = []
        """Where ids of runs are put that this worker takes in hand, for each who wants to know."""
        self.scheduler = Scheduler(self)
        self._event_starts = EventStarts(self)
        self._workflows = workflows
        self._id = worker_id or new_id("wkr")
        self._began = self.clock.now()
        self._idle: dict[str, float] = {}
        self._troubled: set[ActiveRun] = set()
        self._unhurried: set[ActiveRun] = set()
        self._claimed: deque[Claim] = deque()
        self._claiming = True
        self._mail = False
        # By the steady clock, all of them: a wall clock that is set back must not stop us.
        self.renew_at = 0.0
        """When the lease is to be renewed next; 0 until it was for the first time."""
        self._look_at = 0.0
        self._offset = offset(self.clock)
        self._due: float | None = None
        """When the next unowned run is due."""
        self._prod = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None
        self._resting = False
        self._closing = False
        self._letting_go: dict[str, asyncio.Task[None]] = {}
        """Runs that have ended, while what was held for them ends too."""

    # --- life ---

    async def open(self) -> None:
        """Open the store and begin to work."""
        self.context = contextvars.copy_context()
        self.callback_context = contextvars.Context()
        self.store.on_change = self._changed
        await self.store.open()
        self.body_watch = BodyWatch()
        if self.works:
            await self.store.purge()  # what somebody deleted who died on the way
            guard.install()
            keep_generators()
            if isinstance(self.clock, SystemClock):  # other clocks do not follow a thread's time
                self._watchdog = Watchdog(self, self.body_watch)
            self._tending = asyncio.get_running_loop().create_task(self._tend_forever())

    async def close(self, grace: float = 0.0) -> None:
        """Give every run back and close the store; steps have `grace` seconds to finish."""
        self._closing = True
        self._prod.set()
        if self._watchdog is not None:
            await self._watchdog.stop()
        if self._tending is not None:
            await asyncio.wait({self._tending})
        steps = [step for run in self.runs.values() for step in run.steps_under_way]
        tasks = {step.task for step in steps if step.task is not None}
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for run in list(self.runs.values()):
            run.abandon()
        interrupted = {task for task in tasks if not task.done()}
        if interrupted:
            await asyncio.wait(interrupted, timeout=self.settings.cancel_seconds)
        self.watchers.close()
        if self._letting_go:
            await asyncio.wait(self._letting_go.values(), timeout=self.settings.cancel_seconds)
        if self.works:
            try:
                await self._retire()
            except StoreError as error:
                # The lease will run out by itself; closing must not fail for it.
                log.warning("the store did not take this worker's leave: %s", error)
        await self.store.close()

    async def _retire(self) -> None:
        await self.store.retire(self._id)

    @property
    def draining(self) -> bool:
        """Whether it takes nothing new any more, and gives back what it has."""
        return self._closing

    @property
    def me(self) -> Worker:
        """This worker, with a lease from now."""
        expires = self.clock.now() + self.settings.lease_seconds
        lease = self.settings.lease_seconds
        return Worker(
            self._id, os.getpid(), platform.node(), self._began, expires, lease_seconds=lease
        )

    @property
    def in_hand(self) -> Collection[str]:
        """The ids of the runs that go on in this process."""
        return self.runs

    def workflow(self, name: str) -> Workflow[..., Any]:
        if self._workflows is None:
            return find_workflow(name)
        return self._workflows[name]

    def step_timeout(self, workflow: str) -> float | None:
        """The limit of each attempt of a workflow's steps that have none of their own."""
        own = self.workflow(workflow).step_timeout
        return self.settings.step_timeout if own is None else own

    def known_workflows(self) -> Mapping[str, Workflow[..., Any]]:
        """The workflows that can be carried out here, by name."""
        return registered() if self._workflows is None else self._workflows

    def _taken_here(self) -> tuple[list[str], dict[str, str] | None]:
        """The workflows whose runs this worker takes, and of which versions, if not of any."""
        queues, known = self.settings.queues, self.known_workflows()
        if queues:
            known = {name: each for name, each in known.items() if each.queue in queues}
        if self.settings.versions == "any":
            return list(known), None
        return list(known), {name: each.version for name, each in known.items()}

    # --- what others tell ---

    def _changed(self, change: Change | None) -> None:
        if change is None:
            self._claiming = self._mail = True
            if self.scheduler.awaited:
                self.scheduler.look_at = 0.0
            self._prod.set()
        else:
            if change.due:
                self._claiming = True
                self._prod.set()
            if change.mail and not self.runs.keys().isdisjoint(change.mail):
                self._mail = True
                self._prod.set()
            if change.ended:
                self._let_go_of(change.ended)
                if not self.scheduler.awaited.isdisjoint(change.ended):
                    self.look_at_schedules()
        self.watchers.changed(change)

    def _let_go_of(self, ended: Mapping[str, Event]) -> None:
        for run_id in session.held_runs() & ended.keys():
            if ended[run_id].type != RUN_PAUSED:  # a paused run goes on with what it has
                self._let_go(run_id)

    def _let_go(self, run_id: str) -> None:
        if run_id not in self._letting_go:
            task = asyncio.get_running_loop().create_task(session.end_run(run_id))
            self._letting_go[run_id] = task
            task.add_done_callback(lambda task: self._let_go_ended(run_id, task))

    def _let_go_ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        del self._letting_go[run_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("what %s held could not be ended: %s", run_id, error)

    def settled(self, run: ActiveRun) -> None:
        """A run has blocked: it may be idle from now on."""
        if run.gone:
            return
        self._idle[run.id] = self.clock.steady()
        if len(self.runs) > self.settings.max_runs:
            self._prod.set()

    def look_for_mail(self) -> None:
        """A run has left its mail alone for a while, and no longer does."""
        self._mail = True
        self._prod.set()

    def look_at_schedules(self) -> None:
        """A schedule was made or changed, or a run has ended that one waits for."""
        self.scheduler.look_at = 0.0
        self._prod.set()

    def dropped(self, run: ActiveRun) -> None:
        """A run is no longer in our hands."""
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            if len(self.runs) == self.settings.max_runs - 1:
                self._claiming = True
                self._prod.set()
        self._idle.pop(run.id, None)
        self._troubled.discard(run)

    def write_soon(self, run: ActiveRun) -> None:
        """A run has something to write that nothing waits for: with the next, or in a while."""
        if not self._unhurried:
            loop = asyncio.get_running_loop()
            loop.call_later(self.settings.unhurried_seconds, self._write_unhurried)
        self._unhurried.add(run)

    def _write_unhurried(self) -> None:
        unhurried, self._unhurried = self._unhurried, set()
        for run in unhurried:
            run.write_out()

    def trouble(self, run: ActiveRun, error: HoldfastError) -> None:
        """The store refuses to write; keep trying."""
        if not self._troubled:
            log.error("the store can't be written, trying again: %s", error)
            self.clock.call_after(self.settings.store_retry_seconds, self._try_again)
        self._troubled.add(run)

    def _try_again(self) -> None:
        troubled, self._troubled = self._troubled, set()
        for run in troubled:
            run.try_again()

    def failure_handler(self, run: ActiveRun, info: ErrorInfo) -> dict[str, Any] | None:
        """The run to start when this one fails, as its last event describes it."""
        return described_handler(self.workflow(run.workflow), run.id, info)

    def begin_step(self, run: ActiveRun, command: StepCall, tried: int, before: Retrying) -> Work:
        """Carry out a step, here and now."""
        return StepWork(self, run, command, tried, before)

    def new_token(self) -> str:
        """The secret of a new webhook."""
        return new_token()

    # --- starting ---

    async def create(self, new: NewRun) -> Created:
        """Create a run; if this worker can, it takes it in hand at once."""
        takes = self.works and not self._closing and len(self.runs) < self.settings.max_runs
        takes = takes and new.workflow in self._taken_here()[0]
        created = await self.store.create(new, self.me if takes else None)
        if created.claim is not None:
            self._activate(created.claim, [new.first_event()])
        return created

    def _activate(self, claim: Claim, journal: list[Event]) -> None:
        run = ActiveRun(self, claim, journal)
        self.runs[run.id] = run
        for taker in self.takers:
            taker.add(run.id)
        # In a callback, not in our task: the body is driven with no other task current.
        asyncio.get_running_loop().call_soon(run.begin, context=self.callback_context)

    # --- tending ---

    async def _tend_forever(self) -> None:
        while not self._closing:
            self._prod.clear()
            try:
                await self._tend()
            except StoreError as error:
                log.error("the store can't be used, trying again: %s", error)
                self._look_at = self.clock.steady() + self.settings.store_retry_seconds
            except HoldfastError:
                log.exception("tending failed")
            if not self._closing:
                await self._until(self._next_moment())

    async def _until(self, moment: float) -> None:
        left = max(moment - self.clock.steady(), 0.0)
        timer = self.clock.call_after(left, self._prod.set)
        self._resting = True
        try:
            await self._prod.wait()
        finally:
            self._resting = False
            timer.cancel()

    def _next_moment(self) -> float:
        moments = [self._look_at, self.renew_at, self.scheduler.look_at]
        if self._idle:
            moments.append(min(self._idle.values()) + self.settings.idle_seconds)
        return min(moments)

    async def _tend(self) -> None:
        now = self.clock.steady()
        await self._notice_jump()
        if self._mail:
            self._mail = False
            await self._fetch_mail()
        if now >= self.renew_at:  # without runs, too: it is by its lease that we are listed
            self.renew_at = self._next_renewal()
            await self.store.renew(self.me)
        await self._give_back_idle(now)
        await self._take_up_claimed()
        if now >= self.scheduler.look_at:
            await self.scheduler.tend()
        if self._claiming or now >= self._look_at:
            self._claiming = False
            await self._event_starts.tend()
            await self._claim(now)
            await self._let_go_of_ended_elsewhere()

    async def _let_go_of_ended_elsewhere(self) -> None:
        """What is held here for runs that another process has ended, or that ended long ago."""
        for run_id in session.held_runs() - self.runs.keys():
            run = await self.store.get(run_id)
            if run is not None and (run.ended or run.status == "stuck"):
                self._let_go(run_id)

    def _next_renewal(self) -> float:
        return self.clock.steady() + self.settings.lease_seconds / 3

    async def _notice_jump(self) -> None:
        """Whether the wall clock was set since the last look, and what is due by it."""
        before, self._offset = self._offset, offset(self.clock)
        jump = self._offset - before
        if abs(jump) <= JUMP_SECONDS:
            return
        log.warning("the machine's clock was set by %+.1f s", jump)
        self._claiming = True
        if jump < 0:
            await self.store.keep_due(self.clock.now() - jump)

    async def _fetch_mail(self) -> None:
        useless: list[int] = []
        for mail in await self.store.mail(self._id):
            run = self.runs.get(mail.run_id)
            if run is not None and not run.receive(mail):
                useless.append(mail.id)
        if useless:
            await self.store.drop_mail(useless)

    async def _give_back_idle(self, now: float) -> None:
        crowded = len(self.runs) >= self.settings.max_runs
        patience = 0.0 if crowded else self.settings.idle_seconds
        leaving: list[tuple[ActiveRun, float | None]] = []
        for run_id, since in list(self._idle.items()):
            run = self.runs[run_id]
            if now < since + patience:
                continue
            self._idle[run_id] = now  # if it can't leave now, look again in a while
            if run.idle:
                # At once: from here on nothing begins in it, so that what it is given back
                # with is how it stands.
                leaving.append((run, run.leave()))
        await asyncio.gather(*(self._give_back(run, due_at) for run, due_at in leaving))

    async def _give_back(self, run: ActiveRun, due_at: float | None) -> None:
        # It is ours until the store has said that it is not.
        try:
            await self.store.release(run.id, run.fence, due_at)
        except StoreError:
            run.stay()
            raise
        run.abandon()

    async def _claim(self, now: float) -> None:
        room = self.settings.max_runs - len(self.runs)
        known, versions = self._taken_here()
        lost = await self.store.lost_workers(self._id)
        due = await self.store.next_due(self._id, known, versions)
        if room > 0 and (lost or (due is not None and due <= self.clock.now())):
            limit = min(room, self.settings.claim_batch)
            claims = await self.store.claim(self.me, known, limit, lost, versions)
            self._claimed.extend(claims)
            await self._take_up_claimed()
            self._mail = self._mail or bool(claims)
            self._claiming = self._claiming or len(claims) == limit
            due = await self.store.next_due(self._id, known, versions)
        self._due = due
        left = self.settings.sweep_seconds
        if due is not None:
            left = min(left, max(due - self.clock.now(), 0.0))
        self._look_at = now + left
        if self._mail or self._claiming:
            self._prod.set()

    async def _take_up_claimed(self) -> None:
        # One by one: if the store fails on the way, the rest is still ours to take up.
        while self._claimed:
            await self._take_up(self._claimed[0])
            self._claimed.popleft()

    async def _take_up(self, claim: Claim) -> None:
        try:
            journal = await self.store.load(claim.run.id)
        except CorruptEvent as error:
            log.error("%s", error)
            described = ErrorInfo(error.kind, error.message).as_json()
            facts = {"error": described}
            await self.store.park(claim.run.id, claim.fence, facts, self.clock.now())
        except StoreError as error:
            log.error("%s can't be read, trying again: %s", claim.run.id, error)
            later = self.clock.now() + self.settings.store_retry_seconds
            await self.store.release(claim.run.id, claim.fence, later)
        else:
            self._activate(claim, journal)
