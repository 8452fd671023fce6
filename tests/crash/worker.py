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
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PATIENCE = 8.0
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
        self._process.wait(30)
        self._process.stdout.close()

    def live(self, order: Order) -> Death:
        """One worker's life, from its start to its end or its kill."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return Death(**json.loads(self._process.stdout.readline()))


# --- in the process that forks ---


def main() -> None:
    # What is imported here need not be imported in every fork.
    import pydantic

    import crash.workflows

    pydantic.TypeAdapter(type(crash.workflows.EXPECTED))

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
        waiting, sticking = asyncio.ensure_future(run.result()), asyncio.ensure_future(_stuck(run))
        await asyncio.wait({waiting, sticking}, return_when=asyncio.FIRST_COMPLETED)
        sticking.cancel()
        if not waiting.done():
            waiting.cancel()
            raise RuntimeError((await run.record()).error)
        async for _ in engine.watchers.changes():  # children that were cut off may still clean up
            if all(each.ended for each in (await list_runs()).runs):
                break
        return waiting.result()


async def _stuck(run: Any) -> None:
    from holdfast.runtime import ambient

    engine = await ambient.current_engine()
    async for _ in engine.watchers.changes():
        if (await run.status()) == "stuck":
            return


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
    from holdfast.store import writer
    from holdfast.store.base import Change

    together = writer.commit

    def commit(connection: Any, items: list[Any], path: Any) -> Any:
        results: list[Any] = []
        changes: list[Change] = []
        for item in items:
            result, change = together(connection, [item], path)
            results += result
            changes.append(change)
        return results, Change(
            frozenset().union(*(change.mail for change in changes)),
            frozenset().union(*(change.ended for change in changes)),
            any(change.due for change in changes),
        )

    writer.commit = commit


def _note_acknowledgements(path: str) -> None:
    """Note every event that the store tells its run is safe, before the run acts on it."""
    from holdfast.store.events import event_hash
    from holdfast.store.sqlite import SqliteStore

    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    append_to = SqliteStore.append

    def append(self: Any, append: Any, **options: Any) -> None:
        tell = append.done

        def done(error: Any) -> None:
            if error is None:
                for event in append.events:
                    seen = [event.run_id, event.seq, event.type, event_hash(event).hex()]
                    os.write(file, (json.dumps(seen) + "\n").encode())
            tell(error)

        append.done = done
        append_to(self, append, **options)

    SqliteStore.append = append


if __name__ == "__main__":
    main()
