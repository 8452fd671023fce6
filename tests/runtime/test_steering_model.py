"""Any requests to any runs in any order, on the real engine and SQL, against a small model.

The model knows nothing of journals, mail or fences: only what `docs/reference/steering.md` says.
A worker may die with any request. `HOLDFAST_STEERING_EXAMPLES` makes it longer.
"""

import asyncio
import math
import os
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from steered import LIMIT, SETTINGS, effects, forget, gates, pass_time, settle, subject

from holdfast import Refused, RunHandle, send_event, start
from holdfast.testing import Harness

EXAMPLES = int(os.environ.get("HOLDFAST_STEERING_EXAMPLES", "40"))


@dataclass
class Modelled:
    """What should be true of a run."""

    number: int
    kind: str
    due: float
    """When it may begin; its time counts from then on."""
    status: str = "pending"
    """As the store would say, but `under way` for running and waiting."""
    begun: bool = False
    place: str = "first"
    """Where the body is: first, second, failure, event, sleep; each not done yet."""
    wake: float = 0.0
    has_event: bool = False
    has_failed: bool = False
    timeout: float | None = None
    pausing: bool = False
    done: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def do(self, *what: str) -> None:
        for each in what:
            if self.done[-1:] != (each,):
                self.done += (each,)

    @property
    def deadline(self) -> float:
        return math.inf if self.timeout is None or self.ended else self.due + self.timeout

    @property
    def at_gate(self) -> bool:
        return self.status == "under way" and self.place == "first" and self.kind == "gated"


class Model:
    """What should be true of all of them."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.runs: list[Modelled] = []

    def admit(self) -> None:
        """Let in what is due, oldest first, as far as there are places."""
        for run in self.runs:
            if run.status not in ("pending", "queued") or run.due > self.now:
                continue
            if sum(each.begun and not each.ended for each in self.runs) < LIMIT:
                run.status, run.begun = "under way", True
                self.go_on(run)
                self.admit()
                return
            run.status = "queued"

    def go_on(self, run: Modelled, *, gate_open: bool = False) -> None:
        """Let the body run until it blocks."""
        if run.status != "under way":
            return
        if run.place == "first":
            if run.kind == "gated" and not gate_open:
                return
            run.do("a")
            run.place = "second"
        if run.place == "second":
            run.do("then")
            run.place = "event"
            if run.kind == "failing" and not run.has_failed:
                run.has_failed, run.place = True, "failure"
                run.do("try")
                self.end(run, "failed", "clean")
                return
        if run.place == "failure":
            run.do("try")
            run.place = "event"
        if run.place == "event" and run.has_event:
            run.do("b")
            run.has_event, run.place, run.wake = False, "sleep", self.now + 3600
        if run.place == "sleep" and run.wake <= self.now:
            run.do("c")
            self.end(run, "completed", "clean")

    def end(self, run: Modelled, status: str, *what: str) -> None:
        run.do(*what)
        run.status, run.pausing = status, False
        self.admit()

    def pass_time(self, end: float) -> None:
        while True:
            asleep = [r.wake for r in self.runs if r.status == "under way" and r.place == "sleep"]
            delayed = [r.due for r in self.runs if r.status == "pending"]
            deadlines = [r.deadline for r in self.runs]
            moment = min([*asleep, *delayed, *deadlines], default=end)
            if moment > end:
                break
            self.now = max(self.now, moment)
            for run in list(self.runs):
                if run.deadline <= self.now:
                    self.end(run, "failed", *(["clean"] if run.begun else []))
                else:
                    self.go_on(run)
            self.admit()
            if moment == end:
                break
        self.now = end

    # --- requests; False: refused ---

    def cancel(self, run: Modelled) -> bool:
        if run.ended:
            return run.status == "cancelled"
        self.end(run, "cancelled", *(["clean"] if run.begun else []))
        return True

    def terminate(self, run: Modelled) -> bool:
        if run.ended:
            return run.status == "cancelled"
        self.end(run, "cancelled")
        return True

    def pause(self, run: Modelled) -> bool:
        if run.ended:
            return False
        if run.at_gate:
            run.pausing = True
        else:
            run.status = "paused"
        return True

    def resume(self, run: Modelled) -> bool:
        if run.pausing:
            run.pausing = False
            return True
        if run.status != "paused":
            return False
        run.status = "under way" if run.begun else "pending"
        self.go_on(run)
        self.admit()
        return True

    def retry(self, run: Modelled) -> bool:
        if run.status != "failed":
            return False
        run.status, run.begun, run.due = "pending", False, self.now
        self.admit()
        return True

    def fork(self, run: Modelled) -> bool:
        new = Modelled(len(self.runs), run.kind, self.now, timeout=run.timeout)
        self.runs.append(new)
        self.admit()
        return True

    def event(self, run: Modelled) -> bool:
        if not run.ended:
            run.has_event = True
            self.go_on(run)
        return True

    def open_gate(self, run: Modelled) -> None:
        if not run.pausing:
            self.go_on(run, gate_open=True)
            return
        run.do("a")
        run.place, run.pausing, run.status = "second", False, "paused"

    def crash(self) -> None:
        for run in self.runs:
            if run.pausing:  # the step that was under way was not recorded
                run.pausing, run.status = False, "paused"


REQUESTS = ("cancel", "terminate", "pause", "resume", "retry", "fork", "event")


class Steering(RuleBasedStateMachine):
    """See the module's text."""

    def __init__(self) -> None:
        super().__init__()
        forget()
        self.runner = asyncio.Runner()
        self.harness = self.runner.run(self._open())
        self.model = Model(self.harness.clock.now())
        self.handles: list[RunHandle[str]] = []
        self.crashed = False

    async def _open(self) -> Harness:
        harness = Harness(settings=SETTINGS)
        return await harness.__aenter__()

    def teardown(self) -> None:
        self.runner.run(self.harness.__aexit__(None, None, None))
        self.runner.close()

    def _pass(self, seconds: float) -> None:
        """Let time pass: before every rule a moment, so that no two things fall due at once."""
        end = self.model.now + seconds
        self.runner.run(pass_time(self.harness, end))
        self.model.pass_time(end)

    def _die(self, dies: bool) -> None:
        # Once: a run that several workers die with is handled with care, which is tested elsewhere.
        if dies and not self.crashed:
            self.crashed = True
            self.runner.run(self.harness.crash())
            self.model.crash()
        self.runner.run(settle(self.harness))

    # Preconditions and remainders instead of `assume`, which gives the whole example up.
    @precondition(lambda self: len(self.handles) < 6)
    @rule(
        kind=st.sampled_from(["plain", "plain", "gated", "failing"]),
        delay=st.sampled_from([0.0, 0.0, 600.25, 5000.5]),
        timeout=st.sampled_from([None, 61.125, 911.125, 5237.125]),
        dies=st.booleans(),
    )
    def start(self, kind: str, delay: float, timeout: float | None, dies: bool) -> None:
        self._pass(1)
        number = len(self.handles)
        if timeout is not None:
            timeout += number / 1000  # so that no two runs are over at once
        definition = subject.options(delay=delay, timeout=timeout)
        self.handles.append(self.runner.run(start(definition, kind)))
        modelled = Modelled(number, kind, self.model.now + delay, timeout=timeout)
        self.model.runs.append(modelled)
        self.model.admit()
        self._die(dies)

    @precondition(lambda self: self.handles)
    @rule(
        which=st.integers(0, 5),
        request=st.sampled_from(REQUESTS),
        dies=st.sampled_from([False, False, True]),
    )
    def ask(self, which: int, request: str, dies: bool) -> None:
        which %= len(self.handles)
        if request == "fork" and len(self.handles) >= 6:
            request = "event"
        self._pass(1)
        handle, modelled = self.handles[which], self.model.runs[which]
        accepted = getattr(self.model, request)(modelled)
        try:
            self.runner.run(self._ask(handle, request))
        except Refused:
            assert not accepted, f"{request} was refused"
        else:
            assert accepted, f"{request} should have been refused"
        self._die(dies)

    async def _ask(self, handle: RunHandle[str], request: str) -> None:
        if request == "fork":
            self.handles.append(await handle.fork())
        elif request == "event":
            await send_event("go", run=handle.id)
        else:
            await getattr(handle, request)()

    @precondition(lambda self: gates)
    @rule(which=st.integers(0, 5))
    def open_gate(self, which: int) -> None:
        self._pass(1)
        waiting = [n for n, handle in enumerate(self.handles) if handle.id in gates]
        if not waiting:  # the moment that passed has ended the last one
            return
        which = waiting[which % len(waiting)]
        gates[self.handles[which].id].set()
        self.model.open_gate(self.model.runs[which])
        self.runner.run(settle(self.harness))

    @rule(seconds=st.sampled_from([7, 70, 700, 4000]))
    def wait(self, seconds: int) -> None:
        self._pass(seconds)

    @invariant()
    def as_modelled(self) -> None:
        found, expected = [], []
        for handle, modelled in zip(self.handles, self.model.runs, strict=True):
            status = self.runner.run(handle.status())
            named = "under way" if status in ("running", "waiting") else status
            found.append((named, tuple(effects.get(handle.id, ()))))
            expected.append((modelled.status, modelled.done))
        assert found == expected
        sql = "SELECT count(*) FROM runs WHERE begun_at IS NOT NULL AND finished_at IS NULL"
        under_way = self.harness._database.connection.execute(sql).fetchone()[0]
        assert under_way <= LIMIT


TestSteering = Steering.TestCase
TestSteering.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    derandomize="HOLDFAST_STEERING_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
