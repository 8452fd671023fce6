"""Following a run live: the open steps redrawn on a terminal, elsewhere a line per finished one."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO

from holdfast.cli.output import dim, mark
from holdfast.cli.view import step_line
from holdfast.errors import NotFound, StoreError
from holdfast.records import Event, Run, Step
from holdfast.runtime.engine import Engine
from holdfast.runtime.step_records import steps_of

PAUSE_SECONDS = 0.05
"""At least so long between two looks, and four times as long as a look takes: a fast run with a
long journal must not make its watcher the busiest process."""

Show = Callable[[Run, Sequence[Step]], None]
Line = Callable[[Step, float, int], str | None]
"""A step as a line of at most so many characters, at this moment; None: it gets none."""


async def follow(
    engine: Engine, run_id: str, show: Show, look: Callable[[], Awaitable[None]] | None = None
) -> tuple[Run, list[Event]]:
    """Call `show` with what is new until the run has ended or is stuck; before it, `look`."""
    journal: list[Event] = []
    async for _ in engine.watchers.changes():
        began = time.monotonic()
        run = await engine.store.get(run_id)  # asked first: nothing is recorded after the end
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        journal += await engine.store.events(run_id, len(journal), -1)
        steps = steps_of(journal)
        if look is not None and steps:  # before the first step there is nothing to see
            await look()
        show(run, steps)
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


def _coloured(line: str | None, stream: TextIO) -> str | None:
    """A step's line, which begins with its symbol."""
    if line is None or len(line) < 2:
        return line
    return f"{line[0]}{mark(line[1], stream)}{line[2:]}"


class Lines:
    """Writes a run's progress to a stream."""

    def __init__(self, stream: TextIO, engine: Engine, line: Line = step_line) -> None:
        self._stream, self._clock, self._line = stream, engine.clock, line
        self._live = stream.isatty()
        self._drawn = 0
        self._finished = Finished()
        self._status = ""

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Show a run's steps as they are now."""
        now = self._clock.now()
        columns = shutil.get_terminal_size().columns if self._live else 120
        self._erase()
        for step in self._finished.new(steps):
            self._write(_coloured(self._line(step, now, columns), self._stream))
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

    def _write(self, line: str | None) -> None:
        if line is not None:
            self._stream.write(f"{line}\n")

    def _erase(self) -> None:
        """Take back the lines of the steps that were still open."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
