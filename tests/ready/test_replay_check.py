"""What a deploy would do to recorded runs is known before: all that get stuck, and no others."""

from __future__ import annotations

import os
import random
import subprocess
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import send_event, start, step, wait_for_event, workflow
from holdfast.ready.replay_check import CheckReport, check_runs
from holdfast.ready.replay_guards import propose_guards
from holdfast.runtime.definitions import Workflow, registered
from holdfast.runtime.settings import Settings
from holdfast.store.base import RunFilter
from holdfast.testing import Harness
from ready.generated_workflows import changed, source_of

pytestmark = pytest.mark.usefixtures("quiet", "own_registry")

MUTANTS = int(os.environ.get("HOLDFAST_MUTANTS", "60"))
PARTS = 2


def load(source: str, file: str = "<generated>") -> dict[str, Any]:
    module = types.ModuleType("generated")
    exec(compile(source, file, "exec"), vars(module))
    return vars(module)


async def begin(harness: Harness, flow: Workflow[..., Any], chance: random.Random) -> list[str]:
    """Runs that have come to all sorts of places: some end, some wait, some have just begun."""
    runs = [await start(flow, number) for number in (0, 3)]
    await harness.until_blocked()
    for turn in range(chance.randrange(4)):
        await send_event(f"news{chance.randrange(1, 4)}", {}, id=str(turn))
        await harness.skip(chance.choice((1, 31, 61, 700)))
    return [run.id for run in runs]


@pytest.mark.parametrize("part", range(PARTS))
async def test_all_that_get_stuck_in_a_deploy_are_predicted_and_no_others(part: int):
    seen: Counter[str] = Counter()
    for seed in range(part, MUTANTS, PARTS):
        seen += await one_deploy(seed)
    assert seen["stuck"] > MUTANTS / PARTS / 10, seen
    assert seen["fits"] > MUTANTS / PARTS / 10, seen


async def one_deploy(seed: int) -> Counter[str]:
    registered().clear()
    source = source_of(seed)
    # Runs stay in the worker's hands while they wait: so the next worker takes up all of them.
    async with Harness(settings=Settings(idle_seconds=1e9)) as harness:
        old = load(source)
        runs = await begin(harness, old["flow"], random.Random(seed))
        registered().clear()
        load(changed(source, seed))
        report = await check_runs(harness.engine.store, registered())
        live = {
            run_id
            for run_id in [*runs, *(f.run_id for f in report.problems)]
            if not (await harness.engine.store.get(run_id)).ended  # type: ignore[union-attr]
        }
        await harness.crash()
        await harness.until_blocked()
        stuck: set[str] = set()
        for run_id in live:
            run = await harness.engine.store.get(run_id)
            assert run is not None
            if run.status == "stuck":
                stuck.add(run_id)
        predicted = {f.run_id for f in report.problems if f.live}
        assert predicted == stuck, (seed, report.problems, changed(source, seed))
        return Counter({"stuck": len(stuck), "fits": len(live - stuck)})


async def test_without_a_change_every_run_fits():
    for seed in range(10):
        registered().clear()
        async with Harness() as harness:
            flow = load(source_of(seed))["flow"]
            await begin(harness, flow, random.Random(seed))
            report = await check_runs(harness.engine.store, registered())
            assert report.problems == [], seed
            assert report.runs >= 2
            assert report.events > 0


# --- what it says ---

OLD = '''"""Orders."""

from holdfast import step, wait_for_event, workflow


@step
async def reserve(number: int) -> int:
    return number


@step
async def check_stock(number: int) -> bool:
    return True


@step
async def charge(number: int) -> int:
    return number


@workflow
async def order(number: int) -> str:
    """Take an order."""
    await reserve(number)
    for each in range(2):
        await charge(number + each)
    paid = await wait_for_event("paid", match={"number": number}, timeout="7d")
    if not paid:
        return """never
paid"""
    return "paid"
'''


async def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str, *, with_old: bool = True
) -> tuple[CheckReport, list[Any], dict[str, Any], Harness]:
    """Orders that wait for their payment, checked on new code."""
    file = tmp_path / "orders.py"
    monkeypatch.chdir(tmp_path)
    harness = Harness()
    await harness.__aenter__()
    old = load(OLD, str(file))
    for number in (1, 2, 3):
        await start(old["order"], number)
    await harness.until_blocked()
    registered().clear()
    file.write_text(new)
    module = load(new, str(file))
    store = harness.engine.store
    report = await check_runs(store, registered())
    guards = await propose_guards(store, registered(), report, lambda _: OLD if with_old else None)
    return report, guards, module, harness


CHANGES = {
    "added": OLD.replace("    await reserve", "    await check_stock(number)\n    await reserve"),
    "removed": OLD.replace("    await reserve(number)\n", ""),
    "in a loop": OLD.replace(
        "        await charge(number + each)\n",
        "        await check_stock(number)\n        await charge(number + each)\n",
    ),
    "another argument": OLD.replace("charge(number + each)", "charge(number * 2 + each)"),
    "moved": OLD.replace("    await reserve(number)\n", "").replace(
        "    paid =", "    await reserve(number)\n    paid ="
    ),
    "all of it": OLD.replace(
        "    await reserve(number)\n    for each in range(2):\n", "    for each in (7, 8, 9):\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_guard_that_is_written_lets_the_old_runs_go_on_and_new_ones_do_the_new(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report, guards, _, harness = await checked(tmp_path, monkeypatch, CHANGES[change])
    try:
        assert report.live == {"needs patched": 3}
        assert all(f.message and f.key for f in report.problems)
        (guard,) = guards
        assert guard.file == str(tmp_path / "orders.py")
        patched_file = apply(tmp_path, guard.diff)
        assert f'patched("{guard.patch}")' in patched_file
        registered().clear()
        module = load(patched_file, str(tmp_path / "orders.py"))
        await harness.crash()
        await send_event("paid", {"number": 1})
        await harness.until_blocked()
        page = await harness.engine.store.list_runs(RunFilter(), 10, None)
        assert sorted(run.status for run in page.runs) == ["completed", "running", "running"]
        assert (await check_runs(harness.engine.store, registered())).problems == []
        fresh = await start(module["order"], 9)
        await harness.until_blocked()
        assert (await fresh.record()).status == "running"
    finally:
        await harness.__aexit__(None, None, None)


def apply(folder: Path, diff: str) -> str:
    done = subprocess.run(["patch", "-p1"], input=diff, text=True, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "orders.py").read_text()


async def test_a_call_that_was_added_is_guarded_without_the_old_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report, guards, _, harness = await checked(
        tmp_path, monkeypatch, CHANGES["added"], with_old=False
    )
    await harness.__aexit__(None, None, None)
    assert report.live == {"needs patched": 3}
    assert 'if patched("order-check-stock"):\n+        await check_stock(number)' in guards[0].diff
    assert "+from holdfast import patched, step, wait_for_event, workflow" in guards[0].diff


async def test_what_no_guard_can_mend_stays_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    new = OLD.replace(
        "number: int) -> int:\n    return number\n\n\n@step\nasync def check",
        "number: str) -> str:\n    return number\n\n\n@step\nasync def check",
    )
    assert new != OLD
    report, guards, _, harness = await checked(tmp_path, monkeypatch, new)
    await harness.__aexit__(None, None, None)
    assert (report.live, guards) == ({"stuck": 3}, [])


async def test_it_says_at_which_line_code_and_journal_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report, _, _, harness = await checked(tmp_path, monkeypatch, CHANGES["added"])
    await harness.__aexit__(None, None, None)
    place = report.problems[0].place
    assert place is not None
    line = CHANGES["added"].splitlines()[place.line - 1]
    assert (Path(place.file).name, line.strip()) == ("orders.py", "await check_stock(number)")


async def test_a_run_whose_workflow_is_gone_is_unclaimed_and_breaks_unless_others_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report, _, _, harness = await checked(
        tmp_path, monkeypatch, OLD.replace("async def order", "async def orders")
    )
    await harness.__aexit__(None, None, None)
    assert report.live == {"unclaimed": 3}
    assert len(report.breaking()) == 3
    assert report.breaking(unclaimed=False) == []


async def test_a_body_that_never_waits_does_not_hold_the_check_up():
    turns = 0

    @step
    async def one() -> int:
        return 1

    @workflow(name="spinning")
    async def spinning() -> None:
        await one()
        await wait_for_event("never", timeout="1d")

    async with Harness() as harness:
        await start(spinning)
        await harness.until_blocked()

        @workflow(name="spinning")
        async def endless() -> None:
            nonlocal turns
            while True:
                turns += 1

        quick = Settings(body_seconds=0.2)
        report = await check_runs(harness.engine.store, registered(), settings=quick)
    assert turns
    assert "without waiting for anything" in report.problems[0].message


async def test_a_kept_run_that_would_end_otherwise_breaks():
    async with Harness() as harness:

        @workflow(name="ends")
        async def ends(number: int) -> int:
            return number

        run = await start(ends, 1)
        assert await run.result() == 1

        @workflow(name="ends")
        async def ends_no_more(number: int) -> int:
            await wait_for_event("more", timeout="1d")
            return number

        report = await check_runs(harness.engine.store, registered())
    assert report.kept == {"breaks": 1}
    assert "the code now goes on" in report.problems[0].message
