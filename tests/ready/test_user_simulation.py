"""Simulating users' workflows: their mistakes are found, told the same way twice, kept as tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import (
    generate_text,
    now,
    patched,
    sleep,
    step,
    step_context,
    wait_for_event,
    workflow,
)
from holdfast.ready.simulation import (
    JUMP,
    KINDS,
    Mishap,
    Scenario,
    SimulatedRun,
    broken,
    play,
    simulate,
)
from holdfast.runtime.definitions import registered
from ready.mistakes import MISTAKES

pytestmark = pytest.mark.usefixtures("quiet", "own_registry")

SEEDS = 400
CHOSEN = MISTAKES if os.environ.get("HOLDFAST_ALL_MISTAKES") else MISTAKES[::6]
"""Some in `make test`; all are a minute or two by themselves."""


@pytest.mark.parametrize("make", CHOSEN, ids=lambda make: make.__name__)
def test_the_mistake_is_found(make: Callable[[], Scenario]) -> None:
    began = time.thread_time()
    report = simulate(make(), SEEDS)
    assert report.found is not None, report
    assert report.found.broken
    assert len(report.found.plan) <= 2, report.found
    print(f"{make.__name__}: seed {report.found.seed}, {time.thread_time() - began:.1f} s of CPU")


def healthy() -> Scenario:
    accounts: dict[str, int] = {}

    @step
    async def pay() -> str:
        accounts.setdefault(step_context().idempotency_key, 5)
        return "paid"

    @step
    def tell(text: str) -> str:
        return text

    @workflow(name="healthy")
    async def flow(order: str) -> str:
        text = (await generate_text("any/model", prompt=order)).text
        came = await wait_for_event("go", match={"order": order}, timeout="1h")
        await sleep(30)
        return await tell(f"{await pay()} {text} {bool(came)}")

    def check_once(run: SimulatedRun) -> bool:
        return len(accounts) <= 1

    return Scenario(flow, {"order": "A"}, {"check_once": check_once}, reset=accounts.clear)


def test_a_workflow_without_a_mistake_stands_everything() -> None:
    report = simulate(healthy(), 60)
    assert report.found is None, report.found
    assert report.seeds == 60 > report.boundaries > 10


def test_every_kind_of_mishap_happens_and_the_same_seed_tells_the_same_story() -> None:
    scenario = healthy()
    _, calm = play(scenario, (), 0)
    for kind in KINDS:
        if kind in ("event twice", "events early", "broken tool call"):
            continue
        told: list[list[str]] = []
        for _ in range(2):
            for at in range(1, calm.boundaries + 1):
                run, _ = play(scenario, [Mishap(at, kind)], 7)
                assert not broken(scenario, run), (kind, at, run.story)
                told.append(run.story)
                if len(run.story) > len(calm.story) or kind.startswith(("event", "model", "cut")):
                    break
        half = len(told) // 2
        assert told[:half] == told[half:], kind


def deployed(*, guarded: bool) -> Scenario:
    """A workflow, and new code of it that asks for something more in the middle."""

    @step
    async def note(word: str) -> str:
        return word

    @workflow(name="deployed_between")
    async def old() -> list[str]:
        words = [await note("first"), await note("last")]
        await sleep(30)  # time for a deploy after both
        return words

    @workflow(name="deployed_between")
    async def new() -> list[str]:
        first = await note("first")
        if not guarded or patched("more"):
            await note("more")
        words = [first, await note("last")]
        await sleep(30)
        return words

    registered()["deployed_between"] = old
    return Scenario(old, new_code={"deployed_between": new})


def test_a_deploy_in_between_is_found_to_break_a_run_unless_the_change_is_guarded() -> None:
    scenario = deployed(guarded=False)
    _, calm = play(scenario, (), 0)
    runs = [play(scenario, [Mishap(at, "deploy")], 0)[0] for at in range(1, calm.boundaries + 1)]
    stuck = [run for run in runs if broken(scenario, run).startswith("the run is stuck")]
    assert stuck and len(stuck) < len(runs)
    assert any("new code is deployed" in line for line in stuck[0].story)
    scenario = deployed(guarded=True)
    results: list[list[str]] = []
    for at in range(1, calm.boundaries + 1):
        run, _ = play(scenario, [Mishap(at, "deploy")], 0)
        assert not broken(scenario, run), run.story
        results.append([effect.arguments["word"] for effect in run.effects])
    assert any("more" in words for words in results), results
    assert any("more" not in words for words in results), results


def test_a_clock_that_is_set_back_makes_timers_late_and_nothing_else() -> None:
    @step
    async def work() -> None: ...

    @workflow(name="timed_by_the_wall")
    async def flow() -> float:
        before = now()
        await work()
        await sleep(30)
        return (now() - before).total_seconds()

    def check_time_passes(run: SimulatedRun) -> bool:
        return run.result >= 0

    scenario = Scenario(flow, checks={"check_time_passes": check_time_passes})
    _, calm = play(scenario, (), 0)
    runs = [
        play(scenario, [Mishap(at, "clock back")], 0)[0] for at in range(1, calm.boundaries + 1)
    ]
    assert {broken(scenario, run) for run in runs} == {""}
    assert any(run.seconds > JUMP for run in runs), [run.seconds for run in runs]
    assert all("set back" in " ".join(run.story) for run in runs if run.seconds > JUMP)


APP = """
from holdfast import step, workflow

sent = []


@step
async def send(text: str) -> int:
    sent.append(text)
    return len(sent)


@workflow
async def letters(text: str) -> int:
    return await send(text)
"""
CHECKS = """
import app

INPUT = {"text": "hello"}


def reset():
    app.sent.clear()


def check_one_letter(run):
    assert len(app.sent) <= 1, f"{len(app.sent)} letters were sent"
"""


def test_the_command_tells_the_story_and_saves_it_as_a_test(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "checks.py").write_text(CHECKS)
    words = ("-m", "holdfast.cli.main", "simulate", "app.py:letters", "--invariant", "checks.py")
    done = call(tmp_path, *words, "--seeds", "100", "--save", "test_story.py", code=1)
    assert "check_one_letter does not hold: 2 letters were sent" in done.stdout
    assert "is killed" in done.stdout
    again = call(tmp_path, *words, "--seeds", "100", code=1)
    assert again.stdout == done.stdout
    red = call(tmp_path, "-m", "pytest", "-q", "test_story.py", code=1)
    assert "2 letters were sent" in red.stdout
    mended = APP.replace("    sent.append(text)", "    sent[:] = [text]")
    (tmp_path / "app.py").write_text(mended)
    call(tmp_path, "-m", "pytest", "-q", "test_story.py")
    fine = call(tmp_path, *words, "--seeds", "20")
    assert fine.stdout.startswith("nothing broke: 20 seeds, a kill at each of ")


def call(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
