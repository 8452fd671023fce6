"""Worker processes that kill themselves with SIGKILL at a chosen commit.

A process started with this file as its program waits for orders on its standard input, and
forks a worker for each: a process of its own, dying its own death, without the half second that
a fresh interpreter takes. Nothing of this is in the product; it patches from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from waiting import LIMIT

PATIENCE = 120.0
"""Seconds after which a run that does not end is given up."""

TESTS = Path(__file__).resolve().parents[1]


@dataclass
class Order:
    """One life of a worker."""

    store: str
    workflow: str = "sequential"
    key: str = "the run"
    kill_at: int = 0
    """Die at this boundary: 2n - 1 is before the n-th commit, 2n after it. 0: live."""
    one_by_one: bool = False
    """Commit each operation in a transaction of its own, so that no boundary is skipped."""
    without: str = ""
    """The safeguard to switch off: see `safeguards`."""
    effects: str = ""
    acknowledged: str = ""


@dataclass
class Death:
    """How a life ended."""

    killed: bool
    boundaries: int = 0
    result: Any = None
    error: str = ""


# --- in the test ---


class Nursery:
    """Raises workers; a handle for tests."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()

    def live(self, order: Order) -> Death:
        """One worker's life, from its start to its end or its kill."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return Death(**json.loads(self._process.stdout.readline()))


# --- in the process that forks ---


def main() -> None:
    _warm_up()
    for line in sys.stdin:
        order = Order(**json.loads(line))
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _live(order, writing)
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            report = pipe.read()
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        death = Death(killed) if killed else Death(False, **json.loads(report))
        print(json.dumps(asdict(death)), flush=True)


def _warm_up() -> None:
    """Run everything once, so that no fork has to import and prepare it again."""
    from holdfast.runtime import threads

    usual, threads.IDLE_SECONDS = threads.IDLE_SECONDS, 0.01
    with tempfile.TemporaryDirectory() as folder:
        for name in ("sequential", "parallel", "mixed"):
            asyncio.run(_work(Order(store=f"{folder}/{name}.db", workflow=name)))
    while threading.active_count() > 1:
        time.sleep(0.005)  # a process with threads must not fork
    threads.IDLE_SECONDS = usual


# --- in the worker ---


class _Boundaries:
    """Counts the commits of this process, and dies at one."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def passed(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # the signal is on its way


def _live(order: Order, report: int) -> None:
    os.environ["CRASH_EFFECTS"] = order.effects
    boundaries = _Boundaries(order.kill_at)
    try:
        _watch_commits(boundaries)
        if order.one_by_one:
            _commit_one_by_one()
            _append_one_by_one()
        if order.acknowledged:
            _note_acknowledgements(order.acknowledged)
        if order.without:
            from crash.safeguards import SWITCHES

            SWITCHES[order.without]()
        result = asyncio.run(asyncio.wait_for(_work(order), PATIENCE))
        death: dict[str, Any] = {"boundaries": boundaries.count, "result": result}
    except BaseException:  # whatever it is, the test shall see it
        death = {"boundaries": boundaries.count, "error": traceback.format_exc()}
    os.write(report, json.dumps(death).encode())


async def _work(order: Order) -> Any:
    from crash.workflows import WORKFLOWS
    from holdfast import Settings, list_runs, open_engine, start

    workflow, arguments = WORKFLOWS[order.workflow]
    # However often we kill it, it is not the run's fault.
    async with open_engine(order.store, settings=Settings(crash_limit=10_000)) as engine:
        run = await start(workflow.options(key=order.key), *arguments)
        result = await run.result()
        async for _ in engine.watchers.changes():  # children that were cut off may still clean up
            if all(each.ended for each in (await list_runs()).runs):
                break
        return result


def _watch_commits(boundaries: _Boundaries) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super().execute(sql, *parameters)
            boundaries.passed()
            done = super().execute(sql, *parameters)
            boundaries.passed()
            return done

    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **options: connect(*args, factory=Connection, **options)


def _commit_one_by_one() -> None:
    from holdfast.store.sqlite import database

    def work(self: Any) -> None:
        while (batches := self._queue.get()) is not None:
            for batch in batches:
                for item in batch.items or [None]:
                    self._commit([batch._replace(items=[item] if item else [])])

    database.Database._work = work


def _append_one_by_one() -> None:
    """Hand every event to the store by itself, though its run gave it several."""
    from holdfast.store.base import Append
    from holdfast.store.sqlite.store import SqliteStore

    append_to = SqliteStore.append

    def append(self: Any, append: Append) -> None:
        *first, last = append.events
        for event in first:
            append_to(
                self, Append(append.run_id, append.fence, [event], lambda _part, _error: None)
            )
        told = Append(
            append.run_id, append.fence, [last], lambda _part, error: append.done(append, error)
        )
        append_to(self, told)

    SqliteStore.append = append


def _note_acknowledgements(path: str) -> None:
    """Note every event that the store tells its run is safe, before the run acts on it."""
    from holdfast.store.sqlite.events import event_hash

    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def acknowledged(events: Any) -> None:
        for event in events:
            seen = [event.run_id, event.seq, event.type, event_hash(event).hex()]
            os.write(file, (json.dumps(seen) + "\n").encode())

    watch_answers(lambda append, error: acknowledged(append.events if error is None else ()))


def watch_answers(watch: Any) -> None:
    """Call `watch` with every append and what came of it, just before its run is told."""
    from holdfast.runtime.active import ActiveRun

    recorded = ActiveRun._on_recorded

    def watched(self: Any, append: Any, error: Any) -> None:
        watch(append, error)
        recorded(self, append, error)

    ActiveRun._on_recorded = watched


if __name__ == "__main__":
    main()
