"""A worker as a program of its own, for tests with several real processes on one store.

    python program.py STORE '{"lease_seconds": 1, …}' [SAFEGUARD TO SWITCH OFF]

It works until its standard input is closed, and notes in `notes` beside the store what its steps
do and what the store answers to its appends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Settings, open_engine, step, step_context, wait_for_event, workflow

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 120.0
BYSTANDER_PATIENCE = 0.5


# --- for the tests ---


def notes(folder: Path) -> list[list[Any]]:
    """What the processes have noted so far: who, what, and more."""
    path = folder / "notes"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def worker(
    folder: Path, *, without: str = "", **settings: float
) -> Iterator[subprocess.Popen[str]]:
    """A worker process on the store in a folder; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), json.dumps(settings), without],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.send_signal(signal.SIGCONT)
        process.wait(PATIENCE)


# --- what the processes do ---


def note(folder: Path, *what: Any) -> None:
    line = json.dumps([os.getpid(), *what]) + "\n"
    file = os.open(folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


@step
async def touch(folder: str, what: str) -> str:
    note(Path(folder), "touch", what, step_context().idempotency_key)
    return what


@step(retries=0)
async def pass_gate(folder: str) -> int:
    """Wait until the test opens the gate; which process passed it is the result."""
    note(Path(folder), "at the gate", step_context().idempotency_key)
    while not (Path(folder) / "gate").exists():
        await asyncio.sleep(0.01)
    note(Path(folder), "through the gate")
    return os.getpid()


@workflow(name="program-gated")
async def gated(folder: str) -> list[str | int]:
    before = await touch(folder, "before")
    passed = await pass_gate(folder)
    return [before, passed, await touch(folder, "after")]


@step
async def meet(folder: str) -> None:
    """Wait until two processes have runs in hand."""
    note(Path(folder), "meet", step_context().idempotency_key)
    while len({who for who, what, *_ in notes(Path(folder)) if what == "meet"}) < 2:
        await asyncio.sleep(0.01)


@workflow(name="program-shared")
async def shared(folder: str, number: int) -> str:
    await meet(folder)
    return await touch(folder, f"run {number}")


@workflow(name="program-waiting")
async def waiting(folder: str) -> str:
    await touch(folder, "waiting")
    answer = await wait_for_event("program-answer", timeout="1h")
    return answer.payload if answer else "nothing"


@step(retries=0)
async def kill_worker(folder: str) -> None:
    """Kill the worker, once it has an innocent run in hand as well."""
    who, began = os.getpid(), time.monotonic()
    while not any(n[:2] == [who, "at the gate"] for n in notes(Path(folder))):
        if time.monotonic() > BYSTANDER_PATIENCE + began:
            break  # there is none: it is kept away from us
        await asyncio.sleep(0.01)
    note(Path(folder), "kill")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow(name="program-deadly")
async def deadly(folder: str) -> str:
    await touch(folder, "harmless")
    await kill_worker(folder)
    return "never"


async def main(folder: Path, settings: dict[str, Any], without: str) -> None:
    _note_answers(folder)
    if without:
        from crash.safeguards import SWITCHES

        SWITCHES[without]()
    async with open_engine(folder / "store.db", settings=Settings(**settings)):
        note(folder, "open")
        await _end_of_input()


async def _end_of_input() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def _note_answers(folder: Path) -> None:
    from crash.worker import watch_answers

    def watch(append: Any, error: Any) -> None:
        for event in append.events:
            note(folder, "answer", event.type, event.key, type(error).__name__)

    watch_answers(watch)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]))
