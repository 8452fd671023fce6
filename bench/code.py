"""What Holdfast itself costs in an evaluation, and how long `holdfast run` takes to begin.

Overhead: the whole evaluation, less the time of its model calls (a scripted model that answers
at once) and of the commands in its sandboxes. Beside it the same two calls and the same tests
as plain subprocesses, with nothing around them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast import open_engine, start
from holdfast.agents.code import evaluate_code
from holdfast.gateway import ScriptedModel, default_gateway
from holdfast.gateway.messages import Request

ROUNDS = int(os.environ.get("ROUNDS", "40"))
COMMANDS = 4
"""Of one evaluation: judge and program, on the program and on its stub."""
CODE = "def double(n):\n    return 2 * n\n"
TESTS = "from solution import double\n\n\ndef test_double():\n    assert double(2) == 4\n"


def answer(request: Request) -> str:
    tests = "You write tests" in request.messages[0].text
    return f"```python\n{TESTS if tests else CODE}```"


async def evaluations(folder: Path) -> dict[str, float]:
    store = folder / "bench.db"
    overheads, wholes, commands = [], [], []
    with ScriptedModel("bench", answer):
        async with open_engine(store):
            for number in range(ROUNDS + 3):
                began = time.perf_counter()
                run = await start(
                    evaluate_code,
                    f"Write double {number}",
                    model="scripted/bench",
                    check_tests="off",
                )
                result = await run.result()
                whole = time.perf_counter() - began
                assert result.passed
                ran = await _command_seconds(run.id, store)
                calls = await default_gateway().ledger.calls(run_id=run.id)
                model = sum(call.end.latency for call in calls if call.end)
                if number >= 3:
                    overheads.append(whole - ran - model)
                    wholes.append(whole)
                    commands.append(ran)
    return {
        "whole": statistics.median(wholes),
        "tests": statistics.median(commands),
        "overhead": statistics.median(overheads),
    }


async def _command_seconds(run_id: str, store: Path) -> float:
    """How long the commands in the run's sandboxes took; the record is written behind."""
    query = (
        "SELECT count(*), sum(seconds) FROM commands JOIN sandboxes ON sandboxes.id = sandbox_id "
        "WHERE sandboxes.run_id = ? AND ended IS NOT NULL"
    )
    while True:
        with sqlite3.connect(store) as connection:
            count, seconds = connection.execute(query, (run_id,)).fetchone()
        connection.close()
        if count == COMMANDS:
            return seconds
        await asyncio.sleep(0.01)


def bare(folder: Path) -> float:
    """The tests alone, as a subprocess; twice, as the agent runs them on a stub program too."""
    (folder / "solution.py").write_text(CODE)
    (folder / "test_solution.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_solution.py"]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(2):
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def first_step(folder: Path) -> list[float]:
    """Seconds from starting the command to the run's first step."""
    found = []
    for number in range(5):
        store = folder / f"cli{number}.db"
        command = [sys.executable, "-m", "holdfast.cli.main", "run", "Write is_palindrome"]
        began = time.time()
        subprocess.run(
            [*command, "--store", str(store)], check=True, capture_output=True, cwd=folder
        )
        with sqlite3.connect(store) as connection:
            query = "SELECT min(at) FROM events WHERE type = 'step.started'"
            found.append(connection.execute(query).fetchone()[0] - began)
        connection.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        measured = asyncio.run(evaluations(folder))
        alone = bare(folder)
        begins = first_step(folder)
    print(f"one evaluation, p50 of {ROUNDS}: {1000 * measured['whole']:.0f} ms")
    print(f"  tests in the sandbox (twice)   {1000 * measured['tests']:.0f} ms")
    print(f"  Holdfast itself                {1000 * measured['overhead']:.1f} ms   (aim: < 50)")
    print(f"the same tests by bare pytest    {1000 * alone:.0f} ms")
    print(
        f"holdfast run to its first step   {1000 * statistics.median(begins):.0f} ms   (aim: < 500)"
    )
    print(json.dumps({**measured, "bare": alone, "first_step": statistics.median(begins)}))


if __name__ == "__main__":
    main()
