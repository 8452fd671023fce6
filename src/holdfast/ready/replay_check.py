"""Replay recorded runs on the code of today, with nothing carried out: will they go on?

A worker that claims a run brings its body to where the journal ends; a body that asks for
something else than was recorded is parked as `stuck`. Here the same replay is done ahead of a
deploy, for every run: no step, model call or sandbox is begun, and nothing is written. So a run
that fits here is taken up by a worker with this code, and one that does not would be stuck.

Live runs (those that have not ended) must fit. Kept ones have ended; that they replay says that a
retry or a fork of them would, and that the code still does what it did.

Where the code has to change for the old runs, `replay_guards` writes the change.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final, Literal, get_args

from holdfast import config
from holdfast.errors import HoldfastError, NonDeterminismError
from holdfast.records import (
    ENDED,
    RUN_COMPLETED,
    RUN_CONTINUED,
    RUN_STARTED,
    Event,
    Run,
    Status,
)
from holdfast.runtime import guard
from holdfast.runtime.commands import Command
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.history import task_of
from holdfast.runtime.loop import keep_generators
from holdfast.runtime.replay import Completed, Continued, Diverged, Execution, Failed, Outcome
from holdfast.runtime.settings import Settings
from holdfast.runtime.watchdog import BodyWatch, Stopped, place_in_body
from holdfast.store.base import RunFilter, Store

Verdict = Literal["fits", "needs patched", "stuck", "unclaimed", "breaks"]
"""`fits`; of live runs `needs patched` (a guard that was tried makes it fit) and `stuck`, of kept
ones `breaks`; `unclaimed`: not replayed, for no loaded module defines its workflow."""

LIVE: Final[tuple[Status, ...]] = tuple(s for s in get_args(Status) if s not in ENDED)
PAGE = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A line of somebody's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay: where the body stands, or why it can't get there."""

    error: Exception | None = None
    key: str = ""
    """The command at which code and journal part."""
    called: str = ""
    """Name of what the code asks for there, if it asks for something."""
    place: Place | None = None
    outcome: Outcome | None = None

    @property
    def message(self) -> str:
        error = self.error
        if error is None:
            return ""
        return (
            error.message
            if isinstance(error, HoldfastError)
            else f"{type(error).__name__}: {error}"
        )


class _Replay(Execution):
    """An execution that notes where it leaves its journal."""

    parted_at = ""
    called = ""
    place: Place | None = None

    def _issue(self, command: Command) -> None:
        try:
            super()._issue(command)
        except Diverged:
            if self._divergence is not None and self.place is None:
                self.parted_at, self.called = command.key, command.name
                self.place = _line_of(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
            raise

    def _complete(self, event: Event) -> None:
        try:
            super()._complete(event)
        except HoldfastError:
            self.parted_at = event.key
            raise

    def where_it_stands(self, key: str) -> Place | None:
        """The line that the task of a command has come to, or None if it has ended."""
        for task in self.loop.tasks:
            if task.path == task_of(key) and not task.done():
                frames: list[FrameType] = task.get_stack()
                return _line_of(frames[-1] if frames else None)
        return None


def replay(
    workflow: Workflow[..., Any],
    journal: Sequence[Event],
    *,
    max_payload: int,
    watch: BodyWatch | None = None,
) -> Replayed:
    """Bring a workflow's body to where a journal ends, and say whether it gets there."""
    began_at = next((event.at for event in journal if event.type == RUN_STARTED), journal[0].at)
    run: _Replay | None = None
    try:
        run = _Replay(workflow, journal, began_at, max_payload, watch)
        run.replay()
        return Replayed(outcome=run.outcome)
    except Exception as error:  # noqa: BLE001 - whatever it is, a worker would park the run for it
        if run is None:
            return Replayed(error)
        key, place = run.parted_at, run.place
        unasked = run.history.unasked
        if not key and isinstance(error, NonDeterminismError) and unasked:
            key = unasked[0].key
        return Replayed(error, key, run.called, place or run.where_it_stands(key), run.outcome)
    finally:
        if run is not None:
            run.close()


_OURS = ("holdfast.", "asyncio")


def _line_of(frame: FrameType | None) -> Place | None:
    """The innermost line of the user's code; of a ready-made agent's, if there is none."""
    agents: Place | None = None
    while frame is not None and frame.f_code.co_name != "run_until_blocked":
        module = str(frame.f_globals.get("__name__", ""))
        place = Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if not f"{module}.".startswith(_OURS):
            return place
        if module.startswith("holdfast.agents."):
            agents = agents or place
        frame = frame.f_back
    return agents


@contextmanager
def bodies_limited(seconds: float) -> Generator[BodyWatch]:
    """A watch for bodies that this thread runs; one that computes for so long is interrupted, as a
    worker would, so that code which never waits can't hold the check up."""
    watch, over = BodyWatch(), threading.Event()

    def look() -> None:
        turn, since = 0, time.monotonic()
        while not over.wait(min(0.5, seconds / 4)):
            if watch.body is None or watch.turn != turn:
                turn, since = watch.turn, time.monotonic()
            elif (took := time.monotonic() - since) > seconds:
                frame = sys._current_frames().get(watch.thread)  # pyright: ignore[reportPrivateUsage]
                watch.interrupt(turn, Stopped(took, place_in_body(frame)))

    thread = threading.Thread(target=look, name="holdfast-replay-check", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


# --- all runs of a store ---


@dataclass(frozen=True, slots=True)
class Finding:
    """A run, and what would come of it on this code."""

    run_id: str
    workflow: str
    status: Status
    verdict: Verdict
    message: str = ""
    key: str = ""
    called: str = ""
    place: Place | None = None
    next: str = ""
    """Of a live run that fits: how it ends as soon as it is taken up, if it does by failing."""

    @property
    def live(self) -> bool:
        return self.status not in ENDED

    def as_json(self) -> dict[str, Any]:
        place = self.place
        return {
            "run": self.run_id,
            "workflow": self.workflow,
            "status": self.status,
            "verdict": self.verdict,
            "message": self.message,
            "key": self.key,
            "file": None if place is None else place.file,
            "line": None if place is None else place.line,
            "next": self.next or None,
        }


@dataclass
class CheckReport:
    """What was found. `problems` has a finding for each run that does not fit; so does `failing`
    for each that fits and would fail as soon as it is taken up."""

    live: dict[str, int] = field(default_factory=dict[str, int])
    """How many live runs have each verdict."""
    kept: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[Finding] = field(default_factory=list[Finding])
    failing: list[Finding] = field(default_factory=list[Finding])
    events: int = 0
    seconds: float = 0.0
    """Processor time of replaying alone."""

    @property
    def runs(self) -> int:
        return sum(self.live.values()) + sum(self.kept.values())

    def add(self, finding: Finding) -> None:
        counts = self.live if finding.live else self.kept
        counts[finding.verdict] = counts.get(finding.verdict, 0) + 1
        if finding.verdict == "unclaimed" and not finding.live:
            return  # an old workflow's old runs: nobody has to go on with them
        if finding.verdict != "fits":
            self.problems.append(finding)
        elif finding.next:
            self.failing.append(finding)

    def judge_anew(self, finding: Finding, verdict: Verdict) -> None:
        """Another verdict on a run that is among the problems."""
        counts = self.live if finding.live else self.kept
        counts[finding.verdict] -= 1
        if not counts[finding.verdict]:
            del counts[finding.verdict]
        counts[verdict] = counts.get(verdict, 0) + 1
        place = self.problems.index(finding)
        self.problems[place] = replace(finding, verdict=verdict)

    def breaking(self, *, unclaimed: bool = True) -> list[Finding]:
        """The runs that a deploy of this code would break; `unclaimed`: those without a workflow
        in it, too."""
        return [f for f in self.problems if unclaimed or f.verdict != "unclaimed"]

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "events": self.events,
            "live": self.live,
            "kept": self.kept,
            "problems": [each.as_json() for each in self.problems],
            "failing": [each.as_json() for each in self.failing],
            "seconds": round(self.seconds, 3),
        }


async def check_runs(
    store: Store,
    workflows: Mapping[str, Workflow[..., Any]],
    *,
    since: float | None = None,
    kept: bool = True,
    only: str | None = None,
    settings: Settings | None = None,
) -> CheckReport:
    """Replay the store's runs on these workflows: the live ones, and the `kept` since a moment.

    `only`: the runs of this workflow alone. Nothing is written to the store, and nothing of what
    the workflows ask for is carried out.
    """
    chosen = settings or config.section("runtime", Settings)
    guard.install()
    keep_generators()
    report = CheckReport()
    with bodies_limited(chosen.body_seconds) as watch:
        async for run in _runs(store, since, kept=kept, only=only):
            finding, events, seconds = await _check(store, workflows, run, chosen, watch)
            report.add(finding)
            report.events += events
            report.seconds += seconds
    return report


async def _runs(
    store: Store, since: float | None, *, kept: bool, only: str | None
) -> AsyncGenerator[Run]:
    filters = [RunFilter(workflow=only, status=LIVE)]
    if kept:
        filters.append(RunFilter(workflow=only, status=tuple(sorted(ENDED)), created_after=since))
    for where in filters:
        cursor: str | None = None
        while True:
            page = await store.list_runs(where, PAGE, cursor)
            for run in page.runs:
                yield run
            cursor = page.cursor
            if not cursor:
                break


async def _check(
    store: Store,
    workflows: Mapping[str, Workflow[..., Any]],
    run: Run,
    settings: Settings,
    watch: BodyWatch,
) -> tuple[Finding, int, float]:
    """A run's finding, how many events were replayed, and how long that took."""
    workflow = workflows.get(run.workflow)
    if workflow is None:
        message = f"no loaded module defines the workflow {run.workflow!r}"
        return Finding(run.id, run.workflow, run.status, "unclaimed", message), 0, 0.0
    try:
        journal = await store.load(run.id)
    except HoldfastError as error:
        return _finding(run, Replayed(error)), 0, 0.0
    began = time.thread_time()
    found = replay(workflow, journal, max_payload=settings.max_payload, watch=watch)
    seconds = time.thread_time() - began
    if found.error is None and run.ended:
        found = _same_end(found, journal)
    await asyncio.sleep(0)  # others on this loop have their turn
    return _finding(run, found), len(journal), seconds


_ENDINGS: Final = {RUN_COMPLETED: Completed, RUN_CONTINUED: Continued}


def _same_end(found: Replayed, journal: Sequence[Event]) -> Replayed:
    """A run that has come to its own end must come to one of the same kind."""
    expected = _ENDINGS.get(journal[-1].type)
    if expected is None or isinstance(found.outcome, expected):
        return found
    if isinstance(found.outcome, Failed):
        now = f"fails with {type(found.outcome.error).__name__}: {found.outcome.error}"
    else:
        now = "goes on" if found.outcome is None else "ends otherwise"
    message = f"the journal ends with {journal[-1].type}, but the code now {now}"
    return Replayed(NonDeterminismError(message), outcome=found.outcome)


def _finding(run: Run, found: Replayed) -> Finding:
    name, status = run.workflow, run.status
    if found.error is not None:
        verdict: Verdict = "breaks" if run.ended else "stuck"
        message, place = found.message, found.place
        return Finding(run.id, name, status, verdict, message, found.key, found.called, place)
    failed = isinstance(found.outcome, Failed) and not run.ended
    next = ""
    if failed and isinstance(found.outcome, Failed):
        next = f"fails with {type(found.outcome.error).__name__}: {found.outcome.error}"
    return Finding(run.id, name, status, "fits", next=next)
