"""The process is killed with -9 wherever it is; whoever goes on pays for no finished call twice.

At every beginning and end of a step, in the middle of a model call and in the middle of a test
run. Afterwards the run ends as if nothing had happened, the ledger and the provider agree on
what was called, and nothing is left of any sandbox.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents.code.healing import killed
from agents.code.healing.pairing import asked_for, heals, named
from agents.code.healing.running import MODELS, Bench, Done
from agents.code.healing.traces import traces
from crash.checks import check_whole, journals
from holdfast.gateway.messages import Request
from waiting import LIMIT, until

TESTS = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, killed.__file__]
PAIR = named("split_csv")
RUN = ("run", PAIR.task, "--model", MODELS["chat"], "--key", PAIR.name, "--out", "made")
STEPS = [
    "prepare", "generate_code", "generate_tests", "run_tests", "generate_code", "run_tests",
]  # fmt: skip

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """Where the sandboxes of this module's processes leave what they leave."""
    folder = Path(tempfile.mkdtemp(prefix="hf-heal-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(bench: Bench, state: Path) -> Iterator[Bench]:
    bench.variables |= {"HOLDFAST_SANDBOX_DIR": str(state), "PYTHONPATH": str(TESTS)}
    yield bench
    bench.end()
    check_nothing_left(state)


def check_nothing_left(state: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while (left := traces(state)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == {}


def check_end(bench: Bench, steps: list[str] = STEPS) -> None:
    """The run has ended right, and its journal has each step once."""
    found = journals(bench.store)
    check_whole(found)
    [journal] = found.values()
    names = [event.facts["name"] for event in journal if event.type == "step.started"]
    assert names == steps
    [(status,)] = bench.rows("SELECT status FROM runs")
    assert status == "completed"


def check_files(bench: Bench, done: Done) -> None:
    assert done.code == 0, f"{done}"
    assert "passed on attempt 2 of 3" in done.out
    assert (bench.folder / "made/solution.py").read_text() == PAIR.fixed
    assert (bench.folder / "made/test_solution.py").read_text() == PAIR.tests


def sub_bench(bench: Bench, name: str) -> Bench:
    """Another store in a folder of its own, with the same provider and the same sandboxes."""
    folder = bench.folder / name
    folder.mkdir()
    made = Bench(folder)
    made.variables = {**bench.variables, "HOLDFAST_STORE": str(made.store)}
    return made


@pytest.mark.parametrize("moment", killed.MOMENTS)
def test_a_run_killed_at_any_step_boundary_ends_right_and_pays_once(
    place: Bench, moment: str
) -> None:
    def kill_at(number: int) -> None:
        bench = sub_bench(place, f"{number}")
        fake = bench.provide(heals)
        try:
            died = bench(*RUN, program=PROGRAM, KILL_AT=f"{moment} {number}")
            assert died.code == -signal.SIGKILL, f"{died}"
            events = bench.events(bench.run_of(PAIR.name))
            on_record = sum(kind == "step.completed" for kind, _ in events)
            # That a step has begun is recorded in passing, perhaps only with its end.
            most = number - (moment == "done")
            assert most - (moment == "begun") <= on_record <= most
            finished = sum(charge.status == "completed" for charge in bench.charges())
            asked = fake.hits
            done = bench(*RUN)
            check_files(bench, done)
            check_end(bench)
            # What was finished is neither asked for nor charged again, on record or not: three
            # in all, but for a call that was under way when its process died.
            charges = bench.charges()
            cut = [charge for charge in charges if charge.status != "completed"]
            assert len(charges) - len(cut) == 3, charges
            # On record before the first byte: it may not have reached the provider.
            assert asked - finished <= len(cut) <= 1, charges
            assert fake.hits - asked == 3 - finished
            if moment == "done":
                called = sum(name.startswith("generate") for name in STEPS[:number])
                assert finished == asked == called, "the call was finished, its step was not"
        finally:
            bench.end()

    with ThreadPoolExecutor(3) as together:
        list(together.map(kill_at, range(1, len(STEPS) + 1)))


def test_a_worker_goes_on_with_a_run_whose_process_was_killed(place: Bench) -> None:
    fake = place.provide(heals)
    died = place(*RUN, program=PROGRAM, KILL_AT="ended 4")  # the first test run
    assert died.code == -signal.SIGKILL, f"{died}"
    assert fake.hits == 2
    worker = place.spawn("worker")
    until(lambda: place.rows("SELECT 1 FROM runs WHERE status = 'completed'"), "the run's end")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LIMIT) == 0
    check_end(place)
    assert fake.hits == 3
    assert [charge.status for charge in place.charges()] == ["completed"] * 3
    shown = place("runs", "watch", place.run_of(PAIR.name))
    assert shown.code == 0, f"{shown}"


class Gate:
    """A provider that answers one kind of question only once it is let."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.waiting, self.opened = threading.Event(), threading.Event()

    async def answer(self, request: Request) -> Any:
        import asyncio

        if asked_for(request) == self._kind and not self.opened.is_set():
            self.waiting.set()
            await asyncio.to_thread(self.opened.wait)
        return heals(request)


@pytest.mark.parametrize("kind", ["code", "tests", "fix"])
def test_a_run_killed_in_the_middle_of_a_model_call_makes_that_call_again(
    place: Bench, kind: str
) -> None:
    gate = Gate(kind)
    fake = place.provide(gate.answer)
    process = place.spawn(*RUN)
    until(lambda: gate.waiting.is_set() or process.poll() is not None, "the call")
    finished = len([charge for charge in place.charges() if charge.status == "completed"])
    assert finished == ["code", "tests", "fix"].index(kind)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    gate.opened.set()
    done = place(*RUN)
    check_files(place, done)
    check_end(place)
    assert fake.hits == 4, "three, and the one that was cut short"
    charges = place.charges()
    assert sorted(charge.status for charge in charges) == ["completed"] * 3 + ["unknown"]
    [(spent, held)] = place.rows(
        "SELECT usd, held_usd FROM spend WHERE scope = ?", f"run:{place.run_of(PAIR.name)}"
    )
    assert spent == sum(charge.charge for charge in charges) and held == 0
    assert spent >= sum(charge.cost or 0 for charge in charges if charge.status == "completed")


def test_a_run_killed_while_its_tests_run_runs_them_again(place: Bench, state: Path) -> None:
    """Tests that take a while, so that there is something to be in the middle of."""
    tests = f"import time\n\ntime.sleep(3)\n\n{PAIR.tests}"

    def script(request: Request) -> Any:
        return tests if asked_for(request) == "tests" else heals(request)

    fake = place.provide(script)
    process = place.spawn(*RUN)
    running = "SELECT 1 FROM commands WHERE ended_at IS NULL AND step = 'run_tests'"

    def in_the_middle() -> bool:
        table = "SELECT 1 FROM sqlite_schema WHERE name = 'commands'"
        return bool(place.rows(table) and place.rows(running) and begun())

    def begun() -> bool:
        """The journal is told of a step's beginning without the step's waiting for it."""
        [journal] = journals(place.store).values()
        return journal[-1].type == "step.started" and journal[-1].facts["name"] == "run_tests"

    until(lambda: in_the_middle() or process.poll() is not None, "the tests")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert begun() and fake.hits == 2
    check_nothing_left(state)
    done = place(*RUN)
    assert done.code == 0, f"{done}"
    check_end(place)
    assert fake.hits == 3, "no call was made again"
    assert [charge.status for charge in place.charges()] == ["completed"] * 3
    left = place.rows("SELECT ended FROM commands WHERE ended_at IS NULL")
    assert left == [], "what the dead process left open is closed"
