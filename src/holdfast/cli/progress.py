"""Following a run on a terminal: the open steps redrawn, elsewhere a line per finished step.

One drawer for every run. Runs of the ready-made agents are told in their own words (which steps
get a line, what they are called, what came of them), with tokens and cost from the ledger.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, cast

from holdfast.agents import run_words
from holdfast.cli.output import SYMBOLS, dim, duration, mark, note, short, show_json
from holdfast.cli.run_text import cost_of, needs_telling, outcome, step_name, tokens_of, told_apart
from holdfast.errors import NotFound, StoreError
from holdfast.records import Event, Run, Step
from holdfast.runtime.engine import Engine
from holdfast.runtime.step_records import steps_of
from holdfast.session import current_store
from holdfast.store import opener
from holdfast.store.ledger import CallTotals

PAUSE_SECONDS = 0.05
"""At least so long between two looks, and four times as long as a look takes: a fast run with a
long journal must not make its watcher the busiest process."""


# --- following ---


class Watcher:
    """Is shown a run whenever something about it is new. This one shows nothing."""

    async def look(self) -> None:
        """Fetch what `show` needs beside the journal; not called before the first step."""

    def show(self, run: Run, steps: Sequence[Step]) -> None:
        """The run and its steps as they are now."""


async def follow(engine: Engine, run_id: str, watcher: Watcher) -> tuple[Run, list[Event]]:
    """Have the run watched until it has ended or is stuck; then how it stands, and its journal."""
    journal: list[Event] = []
    async for _ in engine.watchers.changes():
        began = time.monotonic()
        run = await engine.store.get(run_id)  # asked first: nothing is recorded after the end
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        journal += await engine.store.events(run_id, len(journal), -1)
        steps = steps_of(journal)
        if steps:
            await watcher.look()
        watcher.show(run, steps)
        if run.ended or run.status == "stuck":
            return run, journal
        await asyncio.sleep(max(PAUSE_SECONDS, 4 * (time.monotonic() - began)))
    raise StoreError(f"the store was closed while following {run_id}")


class Finished:
    """Picks the steps that have ended since the last look."""

    def __init__(self) -> None:
        self._told: set[tuple[str, float]] = set()

    def new(self, steps: Sequence[Step]) -> list[Step]:
        found: list[Step] = []
        for step in steps:
            if step.ended_at is not None and (step.key, step.ended_at) not in self._told:
                self._told.add((step.key, step.ended_at))
                found.append(step)
        return sorted(found, key=lambda step: step.ended_at or 0.0)


class StepsAsJson(Watcher):
    """Prints each step that has ended, for programs."""

    def __init__(self) -> None:
        self._finished = Finished()

    def show(self, run: Run, steps: Sequence[Step]) -> None:
        for step in self._finished.new(steps):
            show_json({"step": step.as_json()})


# --- what each kind of run calls its steps ---


@dataclass(frozen=True, slots=True)
class Wording:
    """How the steps of a kind of run are told."""

    name: Callable[[Step], str] = step_name
    outcome: Callable[[Step], str] = lambda step: outcome(step, 200)
    told_apart: Callable[[Step], str] = lambda step: ""
    """What tells a step from others of its name, where that is needed (`needs_telling`)."""
    failed: Callable[[Step], bool] = lambda step: False
    """Whether a step that completed brought bad news, such as tests that failed."""
    silent: Callable[[Step, float], bool] = lambda step, seconds: run_words.is_inner(
        step.kind, step.name, step.status
    )
    """Whether a step that took so long gets no line."""
    columns: int = 20
    """For the name."""
    costs: bool = False
    """Whether tokens and cost are shown: the run calls models."""


def _code_failed(step: Step) -> bool:
    return step.name == "run_tests" and run_words.object_in(step.output).get("passed") is False


def _code_silent(step: Step, seconds: float) -> bool:
    return step.name == "prepare" and step.status == "completed" and seconds < 1


def _code_outcome(step: Step) -> str:
    words: list[str] = []
    attempt = run_words.object_in(step.input).get("attempt", 1)
    if attempt > 1:
        words.append(f"attempt {attempt}")
    if step.attempts > 1:
        words.append(f"try {step.attempts}")
    if step.error is not None:
        words.append(str(step.error))
    found = run_words.object_in(step.output)
    words += [str(found[name]) for name in ("summary", "problem") if found.get(name)]
    if step.name == "check_tests" and found.get("tried"):
        words.append(f"{found['refused']} of {found['tried']} wrong programs refused")
    if found.get("disputes"):
        words.append(f"says the tests are wrong: {found['disputes']}")
    return "  ".join(words)


CODE = Wording(
    name=lambda step: step.name.replace("_", " "),
    outcome=_code_outcome,
    failed=_code_failed,
    silent=_code_silent,
    columns=16,
    costs=True,
)
"""The code agent's steps."""

_REPO_NAMES = {"run_tests": "tests before"}


def _repo_name(step: Step) -> str:
    name = run_words.step_name(step.kind, step.name)
    return _REPO_NAMES.get(step.name, name.replace("_", " "))


def _repo_failed(step: Step) -> bool:
    found = run_words.object_in(step.output)
    return bool(found.get("passed") is False or found.get("is_error") or found.get("ok") is False)


def _repo_silent(step: Step, _seconds: float) -> bool:
    hidden = step.kind == "timer" or run_words.is_inner(
        step.kind, step.name, step.status, repo=True
    )
    return hidden or bool(run_words.object_in(step.output).get("lost"))


def _repo_outcome(step: Step) -> str:
    if step.error is not None:
        return str(step.error)
    given, found = run_words.object_in(step.input), run_words.object_in(step.output)
    match step.name:
        case "take_repo":
            tests: Any = found.get("tests")
            how = cast("dict[str, Any]", tests).get("command") if tests else "no tests found"
            return f"{found.get('files', '')} files, {how}" if found else ""
        case "run_tests":
            return str(found.get("summary", "no tests"))
        case "judge":
            again = given.get("round", 1)
            return f"{found.get('summary', '')}{f'  round {again}' if again > 1 else ''}"
        case "run":
            return str(given.get("command", ""))
        case "search":
            return str(given.get("pattern", ""))
        case "try_repair":
            verdict: Any = found.get("verdict") or {}
            return f"{given.get('number', '')}  {verdict.get('summary', '')}"
        case _ if "path" in given:
            wrong = f"  {found.get('text')}" if found.get("is_error") else ""
            return f"{given['path']}{wrong}"
        case _:
            return run_words.reply_words(found)


REPO = Wording(
    name=_repo_name,
    outcome=_repo_outcome,
    failed=_repo_failed,
    silent=_repo_silent,
    columns=14,
    costs=True,
)
"""The repo agent's steps."""


# --- drawing ---


class Progress(Watcher):
    """Draws a run's steps on a stream, as lines: symbol, name, time taken, what came of it."""

    def __init__(
        self, stream: TextIO, engine: Engine, run_id: str, wording: Wording | None = None
    ) -> None:
        self._stream, self._clock, self._run_id = stream, engine.clock, run_id
        self._wording = wording or Wording(told_apart=told_apart)
        self._names: Counter[str] = Counter()
        self._live = stream.isatty()
        self._drawn = 0
        self._finished = Finished()
        self._status = ""
        self._spent: dict[str, CallTotals] = {}

    async def look(self) -> None:
        """Ask the ledger anew."""
        if self._wording.costs:
            self._spent = await spending(self._run_id)

    def show(self, run: Run, steps: Sequence[Step]) -> None:
        """Write what has ended; on a terminal, redraw what has not."""
        now = self._clock.now()
        columns = shutil.get_terminal_size().columns if self._live else 120
        self._names = Counter(step.name for step in steps)
        self._erase()
        for step in self._finished.new(steps):
            line = self._line(step, now, columns)
            if line is not None:  # it begins with its symbol
                self._write(f"{line[0]}{mark(line[1], self._stream)}{line[2:]}")
        if run.status != self._status and run.status in ("queued", "paused"):
            self._write(f" · {run.status}")
        self._status = run.status
        if self._live and not run.ended:
            unfinished = [step for step in steps if step.ended_at is None]
            for step in unfinished[-10:]:
                line = self._line(step, now, columns)
                if line is not None:
                    self._write(dim(line[: columns - 1], self._stream))
                    self._drawn += 1
        self._stream.flush()

    def _line(self, step: Step, now: float, width: int) -> str | None:
        """A step on one line of at most so many characters; None for one that gets none."""
        wording = self._wording
        took = step.seconds if step.seconds is not None else now - step.started_at
        if wording.silent(step, took):
            return None
        symbol = SYMBOLS["failed" if wording.failed(step) else step.status]
        head = f" {symbol} {wording.name(step):<{wording.columns}} {duration(took):>8}"
        if wording.costs:
            spent = self._spent.get(step.key, CallTotals())
            head = f"{head}  {tokens_of(spent):>6}  {cost_of(spent):>7} "
        room = max(width - len(head) - 3, 20)
        words = wording.outcome(step)
        if needs_telling(step, self._names):
            which = short(wording.told_apart(step), max(room // 2, 10))
            words = " → ".join(word for word in (which, words) if word)
        return f"{head}  {short(words, room)}".rstrip()

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")

    def _erase(self) -> None:
        """Take back the lines of the steps that were still open."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0


# --- tokens and money ---


async def spending(run_id: str) -> dict[str, CallTotals]:
    """What each step of a run spent on models, from the store this process works on."""
    inspection = opener.inspection(current_store())
    try:
        return await inspection.ask(lambda view: view.call_totals_by_step(run_id))
    finally:
        inspection.close()


async def tell_sandboxes(run_id: str) -> None:
    """Say what isolated the sandboxes that a run had: as recorded, whoever carried it out."""
    inspection = opener.inspection(current_store())
    try:
        page = await inspection.ask(lambda view: view.activity_sandboxes(run_id, None, 100))
    finally:
        inspection.close()
    backends = sorted({record.backend for record in page.rows})
    if backends:
        note(f"  sandbox {', '.join(backends)}")


async def costs(run_id: str) -> str:
    """What a run's model calls came to, all of them: tokens and money."""
    spent = sum((await spending(run_id)).values(), CallTotals())
    tokens = tokens_of(spent)
    return " · ".join(word for word in (tokens and f"{tokens} tokens", cost_of(spent)) if word)
