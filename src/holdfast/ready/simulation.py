"""Simulate a user's own workflow: what can go wrong does, by a seed, until an invariant breaks.

The engine, the journal and the store's SQL are the real ones, on the seeded world of
`holdfast.testing.world`: workers whose every callback the world schedules, a clock it turns. A
*plan* is a short list of mishaps, each at a numbered boundary of the run: where a step begins,
where it has acted and its result is not recorded, where something is about to be on disk, where a
model is asked, where an event is due. The same seed makes the same plan, and the same plan the
same story.

The first seeds kill a worker at each boundary in turn; the others mix mishaps. A plan that breaks
an invariant is made shorter, mishap by mishap, as long as it still breaks it, and told in words.

Steps are carried out as they are, in this process: what reaches out of it needs a fake.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, cast, get_args

from holdfast.errors import (
    BadReply,
    HoldfastError,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    UsageError,
)
from holdfast.ids import derived_id
from holdfast.ready.user_modules import load_module
from holdfast.records import COMPLETIONS, RUN_COMPLETED, RUN_FAILED, WAIT_CREATED, Event
from holdfast.runtime.definitions import Step, Workflow, registered
from holdfast.runtime.settings import Settings
from holdfast.session import Caller, current_step, set_caller
from holdfast.store.base import DECIDED, END_OF, NewRun
from holdfast.testing.world import Process, World

Kind = Literal[
    "kill", "pause", "disk full", "step error", "late error", "clock", "clock back", "deploy",
    "model 429", "model 529",
    "cut stream", "broken tool call", "event twice", "event late", "event never", "events early",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
SETTINGS = Settings(lease_seconds=120, sweep_seconds=40, idle_seconds=10, store_retry_seconds=1)
"""Rarer looks than a worker's usual ones: users' waits are hours, and every look costs."""
PAUSE = 600.0
"""Seconds that a worker stands still: several leases of the simulated world."""
JUMP = 3700.0
LIMIT = 30_000
"""Callbacks of the world within which a run has to end."""
BEGAN = "run_0000000000"


@dataclass(frozen=True, order=True)
class Mishap:
    """What goes wrong, and at the how-manieth boundary (model call, event) of the run."""

    at: int
    kind: Kind

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "kind": self.kind}


@dataclass(frozen=True)
class Effect:
    """A step that has acted, whether or not its result was ever recorded."""

    step: str
    arguments: dict[str, Any]
    idempotency_key: str
    attempt: int
    result: Any


@dataclass
class SimulatedRun:
    """What invariants are about: how a run went, whatever happened to it."""

    status: str
    """`completed`, `failed`, `cancelled`, `stuck`; `running` if it did not come to an end."""
    result: Any = None
    error: str = ""
    effects: list[Effect] = field(default_factory=list[Effect])
    events: list[str] = field(default_factory=list[str])
    """Names of the events that were sent, in order."""
    journal: list[Event] = field(default_factory=list[Event])
    seconds: float = 0.0
    """Of virtual time."""
    story: list[str] = field(default_factory=list[str])

    def acted(self, step: str) -> list[Effect]:
        """The effects of a step, in order."""
        return [effect for effect in self.effects if effect.step == step]


Check = Callable[[SimulatedRun], Any]


@dataclass(frozen=True)
class Scenario:
    """A workflow, what it is given, and what must hold."""

    workflow: Workflow[..., Any]
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    checks: Mapping[str, Check] = field(default_factory=dict[str, Check])
    events: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Payloads of the events that the run waits for, by name."""
    fakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """What is done in the stead of steps, by their name."""
    model: Callable[[Any], Any] = lambda _request: "ok"
    """What models answer: text, or anything that a scripted model may."""
    reset: Callable[[], None] = lambda: None
    """Puts back what steps have changed in this process."""
    approve: bool = True
    """What people decide."""
    new_code: Mapping[str, Workflow[..., Any]] = field(
        default_factory=dict[str, Workflow[..., Any]]
    )
    """The workflows that a deploy brings, by name; without them workers begin anew as they were."""


def scenario_of(
    workflow: Workflow[..., Any],
    checks: Mapping[str, Any],
    input: Mapping[str, Any] | None = None,
    new_code: Mapping[str, Workflow[..., Any]] | None = None,
) -> Scenario:
    """A scenario from the names of a module: `check_…` functions, and INPUT, EVENTS, FAKES, MODEL,
    APPROVE and `reset`, where it has them."""
    found = {name: check for name, check in checks.items() if name.startswith("check_")}
    fakes = {getattr(step, "name", step): fake for step, fake in checks.get("FAKES", {}).items()}
    chosen: dict[str, Any] = {
        "input": checks.get("INPUT", {}) if input is None else input,
        "events": checks.get("EVENTS", {}),
        "approve": checks.get("APPROVE", True),
    }
    if "MODEL" in checks:
        chosen["model"] = checks["MODEL"]
    if "reset" in checks:
        chosen["reset"] = checks["reset"]
    return Scenario(workflow, checks=found, fakes=fakes, new_code=new_code or {}, **chosen)


def load_new_code(place: str, root: Path) -> dict[str, Workflow[..., Any]]:
    """The workflows of a file that is to be deployed, whose names may be known here already."""
    known = dict(registered())
    registered().clear()
    try:
        load_module(place, root)
        return dict(registered())
    finally:
        registered().clear()
        registered().update(known)


# --- the world ---


class StoryWorld(World):
    """A world in which a plan is carried out, and told."""

    settings = SETTINGS

    def __init__(self, scenario: Scenario, plan: Sequence[Mishap], seed: int) -> None:
        self.scenario = scenario
        self._plan: dict[tuple[str, int], Kind] = {(_where(m.kind), m.at): m.kind for m in plan}
        self.effects: list[Effect] = []
        self.events: list[str] = []
        self.story: list[str] = []
        self.boundaries = 0
        self.calls = 0
        self._doomed: dict[str, str] = {}
        self._full: dict[str, int] = {}
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._seen: set[str] = set()
        self._looked_at = -1
        self._never: set[str] = set()
        """Names of events that nobody sends any more."""
        super().__init__(seed, dict(registered()))
        self.mishaps, self.disk_errors = 0, 0.0
        self._spawned += 100
        self.client = Process(self, self._spawned, works=False)
        self.processes.append(self.client)
        self.began = self.clock.time
        self.run_id = derived_id("run", BEGAN, scenario.workflow.name)

    # --- telling ---

    def tell(self, text: str) -> None:
        self.story.append(f"{self.clock.time - self.began:9.1f} s  {text}")

    def _name(self, process: Process) -> str:
        return f"worker {int(process.name[4:])}"

    # --- boundaries ---

    def _boundary(self, process: Process, words: str) -> Kind | None:
        self.boundaries += 1
        kind = self._plan.get(("boundary", self.boundaries))
        if kind is None or process is self.client:
            return None
        name = self._name(process)
        if kind == "kill":
            self.tell(f"{name} is killed {words}")
            self._doomed[process.name] = words
        elif kind == "pause":
            self.tell(f"{name} stands still for {PAUSE:g} s {words}, past its lease")
            process.paused_until = self.clock.time + PAUSE
            self.spawn()
        elif kind == "disk full":
            self.tell(f"the disk is full for {name} {words}")
            self._full[process.name] = 3
        elif kind == "clock":
            self.tell(f"the machine sleeps for {JUMP:g} s {words}")
            self.clock.time += JUMP
        elif kind == "clock back":
            self.tell(f"the clock is set back by {JUMP:g} s {words}")
            self.clock.offset -= JUMP
        elif kind == "deploy":
            what = "new code" if self.scenario.new_code else "the same code"
            self.tell(f"{what} is deployed {words}: every worker is replaced")
            self.workflows = {**self.workflows, **self.scenario.new_code}
            for each in self.processes:
                if each is not self.client:
                    self._doomed[each.name] = words
        return kind

    def is_disk_full(self, process: Process) -> bool:
        if process is self.client:
            return False
        if process.engine.runs:
            self._boundary(process, "before what it has recorded is on disk")
        if process.name in self._doomed:
            return True  # a process that is gone commits nothing
        if self._full.get(process.name, 0) > 0:
            self._full[process.name] -= 1
            return True
        return False

    def substitute(self, process: Process, step: Step[..., Any]) -> Callable[..., Any] | None:
        function = self.scenario.fakes.get(step.name, step.function)

        async def act(*args: Any, **kwargs: Any) -> Any:
            here = current_step()
            attempt = 1 if here is None else here.attempt
            kind = self._boundary(process, f"as {step.name} begins (attempt {attempt})")
            await self._stop_if_doomed(process)
            if kind == "step error":
                self.tell(f"{step.name} fails before it acts (attempt {attempt})")
                raise ConnectionError("simulated: nothing was done")
            result = function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            key = "" if here is None else here.idempotency_key
            given = _arguments(step, args, kwargs)
            self.effects.append(Effect(step.name, given, key, attempt, result))
            self.tell(f"{step.name}{_shown(given)} acts (attempt {attempt})")
            words = f"after {step.name} has acted, before its result is recorded"
            kind = self._boundary(process, words)
            await self._stop_if_doomed(process)
            if kind == "late error":
                self.tell(f"{step.name} fails after it has acted (attempt {attempt})")
                raise ConnectionError("simulated: the answer got lost")
            return result

        return act

    async def _stop_if_doomed(self, process: Process) -> None:
        if process.name in self._doomed:
            await process.loop.create_future()

    def _mishap(self) -> None:
        for process in [p for p in self.processes if p.name in self._doomed]:
            self._doomed.pop(process.name)
            self.processes.remove(process)
            self.dead.append(process)
            self.database.kill(process.store.process)
            self.spawn()
        due = [each for each in self._due if each[0] <= self.clock.time]
        for each in due:
            self._due.remove(each)
            each[1]()

    def _pass_time(self) -> bool:
        moments = [moment for moment, _ in self._due]
        timers = [m for p in self.processes if (m := p.loop.next_timer()) is not None]
        if moments and (not timers or min(moments) <= min(timers)):
            self.clock.time = max(self.clock.time, min(moments))
            return True
        return super()._pass_time()

    # --- what comes from outside ---

    def ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        """Carry out a question to the store, at once."""
        try:
            while True:
                question.send(None)
        except StopIteration as answer:
            return answer.value

    def do(self, action: Coroutine[Any, Any, Any]) -> None:
        """Have the client do something, as a process of its own."""
        asyncio._set_running_loop(self.client.loop)  # pyright: ignore[reportPrivateUsage]
        try:
            self.client.loop.create_task(action)
        finally:
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]

    def look(self) -> bool:
        """See to what the run waits for; whether it has ended."""
        run = self.ask(self.client.store.get(self.run_id))
        if run is None:
            return False
        if run.ended or run.status == "stuck":
            return True
        end = self.ask(self.client.store.log_end())
        if end == self._looked_at:
            return False  # nothing was recorded since: nothing new is waited for
        self._looked_at = end
        for waiting in (run.id, *self._children()):
            self._look_at_waits(waiting)
        return False

    def _children(self) -> list[str]:
        journal = self.ask(self.client.store.load(self.run_id))
        return [e.facts["run"]["id"] for e in journal if e.type == "child.started"]

    def _look_at_waits(self, run_id: str) -> None:
        if self.ask(self.client.store.get(run_id)) is None:
            return
        journal: list[Event] = self.ask(self.client.store.load(run_id))
        closed = {e.key for e in journal if e.type in COMPLETIONS}
        for event in journal:
            place = f"{run_id} {event.key}"
            if event.type == WAIT_CREATED and event.key not in closed and place not in self._seen:
                self._seen.add(place)
                self._answer(run_id, event)

    def _answer(self, run_id: str, wait: Event) -> None:
        facts = wait.facts
        name = str(facts["name"])
        if name.startswith(END_OF):
            return
        number = len(self._seen)
        kind = self._plan.get(("event", number))
        now, deadline = self.clock.time, facts.get("deadline")  # that one by the wall clock
        if kind == "event never":
            self._never.add(name)
        if name in self._never:
            self.tell(f"nobody sends {_event_words(name)}")
            return
        moment = now + 1.0
        if kind == "event late" and deadline is not None:
            moment = deadline - self.clock.offset + 1.0
        for turn in range(2 if kind == "event twice" else 1):
            self._due.append(
                (moment + turn, lambda turn=turn: self._send(run_id, name, facts, turn))
            )

    def _send(self, run_id: str, name: str, facts: Mapping[str, Any], turn: int) -> None:
        self.events.append(name)
        again = " a second time" if turn else ""
        if name.startswith(DECIDED):
            self.tell(f"the approval is decided{again}")
            self.do(self._decide(name.removeprefix(DECIDED)))
            return
        payload: Any = self.scenario.events.get(name, {})
        if isinstance(payload, Mapping):
            payload = _matching(cast("Mapping[str, Any]", payload), facts.get("match") or {})
        self.tell(f"the event {name} comes{again}")
        data = json.dumps(payload).encode()
        event_id = f"{name}-{len(self.events)}"
        # To the run alone where its name is the webhook's own, which others may have, too.
        to = run_id if name.startswith("@") else None
        self.do(self.client.store.send(name, data, event_id, to, self.clock.now()))

    async def _decide(self, id: str) -> None:
        from holdfast.loop.approval_decisions import decide

        set_caller(Caller(engine=self.client.engine))
        with contextlib.suppress(HoldfastError):  # too late, or a second time: refused
            await decide(id, self.scenario.approve, by="simulated")

    def send_early(self) -> None:
        """Events that come before anybody waits for them."""
        for name in self.scenario.events:
            self.tell(f"the event {name} comes before it is waited for")
            self._send(self.run_id, name, {}, 0)

    # --- models ---

    def model_error(self, request: Any) -> Any:
        """What a model does instead of answering, if that is planned."""
        self.calls += 1
        kind = self._plan.get(("model", self.calls))
        if kind is None:
            return None
        self.tell(f"the model: {kind}")
        errors: dict[str, ProviderError] = {
            "model 429": RateLimited("simulated: slow down"),
            "model 529": ProviderUnavailable("simulated: overloaded"),
            "cut stream": BadReply("simulated: the stream was cut", bought=True),
        }
        if kind in errors:
            raise errors[kind]
        return kind


def _where(kind: Kind) -> str:
    if kind.startswith(("model", "cut", "broken")):
        return "model"
    return "event" if kind.startswith("event") else "boundary"


def _event_words(name: str) -> str:
    return "a decision" if name.startswith(DECIDED) else f"the event {name}"


def _matching(payload: Mapping[str, Any], match: Mapping[str, Any]) -> dict[str, Any]:
    """A payload that fits what is waited for."""
    made = json.loads(json.dumps(payload))
    for path, value in match.items():
        *folders, last = str(path).split(".")
        place = made
        for name in folders:
            place = place.setdefault(name, {})
        place[last] = value
    return made


def _arguments(step: Step[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return dict(inspect.signature(step.function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {"args": list(args), **kwargs}


def _shown(given: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"({text if len(text) <= 100 else text[:99] + '…'})"


class _SimulatedGateway:
    """Answers model calls in the world's own time, without a ledger and without a network."""

    def __init__(self, world: StoryWorld) -> None:
        self._world = world

    async def call(self, request: Any, *, on_event: Any = None, **_options: Any) -> Any:
        from holdfast.gateway.reply import Reply, Usage, as_events
        from holdfast.gateway.scripted import Fail, Say, as_completion

        kind = self._world.model_error(request)
        answer = self._world.scenario.model(request)
        if kind == "broken tool call":
            tools = request.tools or ()
            name = tools[0].name if tools else "nothing"
            answer = Say(tools=[(name, '{"broken": ')])
        if isinstance(answer, str):
            answer = Say(answer)
        if isinstance(answer, Fail):
            raise ProviderUnavailable(f"simulated: {answer.message}")
        completion = as_completion(answer, request)
        if on_event is not None:
            for event in as_events(completion):
                await on_event(event)
        number = f"call_{self._world.calls:06}"
        served, usage = f"simulated/{request.model}", completion.usage or Usage()
        return Reply(
            number, completion.parts, completion.finish, request.model, served, usage, Decimal(0),
            0.0, None,
        )  # fmt: skip


# --- one plan, one story ---


def play(scenario: Scenario, plan: Sequence[Mishap], seed: int) -> tuple[SimulatedRun, StoryWorld]:
    """Carry out a plan: how the run went, and the world it went in, closed."""
    from holdfast.gateway.calls import use_gateway

    scenario.reset()
    world = StoryWorld(scenario, plan, seed)
    use_gateway(cast("Any", _SimulatedGateway(world)))
    try:
        workflow = scenario.workflow
        arguments = json.dumps(dict(scenario.input)).encode()
        now = world.clock.time
        new = NewRun(
            world.run_id, workflow.name, workflow.version, arguments, {"seed": world.run_id}, now,
            now, timeout=workflow.timeout,
        )  # fmt: skip
        world.run(world.client.main.done)
        if any(m.kind == "events early" for m in plan):
            world.send_early()
        world.do(world.client.engine.create(new))
        ended = world.run(world.look, LIMIT)
        return _outcome(world, ended=ended), world
    finally:
        use_gateway(None)
        world.close()


def _outcome(world: StoryWorld, *, ended: bool) -> SimulatedRun:
    run = world.ask(world.client.store.get(world.run_id))
    journal: list[Event] = world.ask(world.client.store.load(world.run_id))
    status = run.status if ended else "running"
    result = error = None
    if journal[-1].type == RUN_COMPLETED:
        result = json.loads(journal[-1].value or b"null")
    elif journal[-1].type == RUN_FAILED:
        error = journal[-1].facts["error"]
        error = f"{error.get('type', '')}: {error.get('message', '')}"
    world.tell(f"the run ends: {status}" if ended else "the run has not ended")
    return SimulatedRun(
        status, result, error or run.error or "", world.effects, world.events, journal,
        world.clock.time - world.began, world.story,
    )  # fmt: skip


def broken(scenario: Scenario, run: SimulatedRun) -> str:
    """The first invariant that does not hold, in words; "" if all do."""
    if run.status == "stuck":
        return f"the run is stuck: {run.error}"
    if run.status == "running":
        return "the run does not come to an end"
    for name, check in scenario.checks.items():
        try:
            if check(run) is False:
                return f"{name} does not hold"
        except AssertionError as error:
            return f"{name} does not hold: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


@dataclass(frozen=True)
class Counterexample:
    """The shortest plan that was found to break an invariant, and its story."""

    seed: int
    world_seed: int
    plan: tuple[Mishap, ...]
    broken: str
    story: tuple[str, ...]


@dataclass
class SimulationReport:
    """What a simulation came to."""

    seeds: int = 0
    boundaries: int = 0
    """Of the run to which nothing happens: at each of them a worker was killed."""
    seconds: float = 0.0
    found: Counterexample | None = None


def simulate(
    scenario: Scenario, seeds: int = 1000, *, first: int = 0, seconds: float | None = None
) -> SimulationReport:
    """Play seed after seed until an invariant breaks, the seeds are used up or the time is."""
    began = time.monotonic()
    calm, world = play(scenario, (), first)
    report = SimulationReport(boundaries=world.boundaries)
    why = broken(scenario, calm)
    if why:
        report.found = Counterexample(first, first, (), why, tuple(calm.story))
    scale = _Scale(world.boundaries, world.calls, len(calm.events))
    for seed in range(first, first + seeds) if not why else ():
        report.seeds += 1
        plan = plan_of(seed - first, scale)
        # The boundaries are those of the calm run: its schedule is that of the kills at each.
        world_seed = first if seed - first < scale.boundaries else seed
        run, _ = play(scenario, plan, world_seed)
        why = broken(scenario, run)
        if why:
            report.found = shrink(scenario, plan, seed, world_seed)
            break
        if seconds is not None and time.monotonic() - began > seconds:
            break
    report.seconds = time.monotonic() - began
    return report


@dataclass(frozen=True)
class _Scale:
    """How much there is in a calm run for mishaps to happen at."""

    boundaries: int
    calls: int
    events: int


def plan_of(number: int, scale: _Scale) -> tuple[Mishap, ...]:
    """The mishaps of the seed with this number: first a kill at each boundary, then mixtures."""
    if number < scale.boundaries:
        return (Mishap(number + 1, "kill"),)
    chance = random.Random(number)  # noqa: S311 - to be repeatable is its purpose
    plan: set[Mishap] = set()
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        kind = chance.choice(KINDS)
        most = {"model": scale.calls, "event": scale.events}.get(_where(kind), scale.boundaries)
        if most:
            plan.add(Mishap(chance.randrange(1, 2 * most + 2), kind))
    return tuple(sorted(plan))


def shrink(
    scenario: Scenario, plan: Sequence[Mishap], seed: int, world_seed: int
) -> Counterexample:
    """Leave out mishaps as long as an invariant still breaks."""

    def told(candidate: Sequence[Mishap]) -> Counterexample | None:
        run, _ = play(scenario, candidate, world_seed)
        why = broken(scenario, run)
        story = tuple(run.story)
        return Counterexample(seed, world_seed, tuple(candidate), why, story) if why else None

    best = told(plan)
    assert best is not None, "the same plan gives the same story"
    for candidate in _shorter(best.plan):
        found = told(candidate)
        if found is not None and len(found.plan) < len(best.plan):
            best = found
    return best


def _shorter(plan: Sequence[Mishap]) -> Iterator[tuple[Mishap, ...]]:
    """Each mishap by itself first; then the plan without one of them, and so on."""
    for mishap in plan:
        yield (mishap,)
    left = tuple(plan)
    for mishap in plan:
        shorter = tuple(each for each in left if each != mishap)
        if shorter:
            yield shorter


def replay_story(scenario: Scenario, plan: Sequence[Mapping[str, Any]], seed: int) -> SimulatedRun:
    """Play a saved plan again; raises AssertionError, with the story, if an invariant breaks."""
    mishaps: list[Mishap] = []
    for each in plan:
        if each["kind"] not in KINDS:
            raise UsageError(f"there is no mishap {each['kind']!r}")
        mishaps.append(Mishap(int(each["at"]), each["kind"]))
    run, _ = play(scenario, mishaps, seed)
    why = broken(scenario, run)
    if why:
        raise AssertionError("\n".join([why, "", *run.story]))
    return run


def replay_saved(
    *,
    workflow: str,
    invariant: str | None,
    input: Mapping[str, Any],
    deploy: str | None = None,
    plan: Sequence[Mapping[str, Any]],
    seed: int,
) -> SimulatedRun:
    """Play what `holdfast simulate --save` wrote; places are from the folder pytest runs in."""
    place, _, name = workflow.rpartition(":")
    found = getattr(load_module(place, Path.cwd()), name, None)
    if not isinstance(found, Workflow):
        raise UsageError(f"{place} has no workflow {name!r}")
    checks = {} if invariant is None else vars(load_module(invariant, Path.cwd()))
    chosen = cast("Workflow[..., Any]", found)
    new_code = {} if deploy is None else load_new_code(deploy, Path.cwd())
    return replay_story(scenario_of(chosen, checks, input, new_code), plan, seed)
