"""Changed code meets old journals: refused when it does not fit, guided when it is patched."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    RunStuck,
    Settings,
    UsageError,
    now,
    patched,
    random,
    sleep,
    start,
    step,
    uuid4,
    wait_for_event,
    workflow,
)
from holdfast.records import RUN_STUCK
from holdfast.runtime.definitions import Workflow, code_version, registered
from holdfast.testing import Harness

done: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    done.clear()


@step
async def old_step(what: str) -> str:
    done.append(f"old {what}")
    return what


@step
async def new_step(what: str) -> str:
    done.append(f"new {what}")
    return what


def define(body: Callable[[], Awaitable[Any]]) -> Workflow[..., Any]:
    """Deploy another version of the workflow `flow`."""
    registered().pop("flow", None)
    return workflow(name="flow")(body)  # type: ignore[arg-type]


async def old() -> str:
    await old_step("a")
    await sleep("1h")
    return await old_step("b")


async def deploy(harness: Harness, body: Callable[[], Awaitable[Any]]) -> None:
    """Another program takes over."""
    await harness.until_blocked()
    define(body)
    await harness.crash()


async def test_another_step_at_a_recorded_place_parks_the_run_and_shows_both(harness: Harness):
    run = await start(define(old))

    async def changed() -> str:
        await new_step("a")
        await sleep("1h")
        return await old_step("b")

    await deploy(harness, changed)
    with pytest.raises(RunStuck) as stuck:
        await run.result()
    text = str(stuck.value)
    assert 'the journal has step old_step({"what":"a"})' in text
    assert 'the code now calls step new_step({"what":"a"})' in text
    last = (await run.events())[-1]
    assert last.type == RUN_STUCK
    assert "patched" in last.facts["error"]["hint"]
    assert done == ["old a"], "nothing was done by the wrong code"

    await deploy(harness, old)
    await run.resume()
    assert await run.result() == "b"
    assert done == ["old a", "old b"]


@pytest.mark.parametrize("change", ["argument", "removed", "kind", "extra"])
async def test_every_kind_of_difference_is_found(change: str):
    async def changed() -> str:
        if change == "argument":
            await old_step("A")
        elif change == "kind":
            await wait_for_event("x", timeout="1h")
        elif change == "extra":
            await old_step("a")
            await new_step("in between")
        await sleep("1h")
        return await old_step("b")

    async with Harness() as harness:
        run = await start(define(old))
        await deploy(harness, changed)
        with pytest.raises(RunStuck, match="the journal has"):
            await run.result()


async def test_an_except_exception_in_the_body_cannot_hide_the_difference(harness: Harness):
    async def changed() -> str:
        try:
            await new_step("a")
        except Exception:
            return "hidden"
        return await old_step("b")

    run = await start(define(old))
    await deploy(harness, changed)
    with pytest.raises(RunStuck):
        await run.result()


async def patched_body() -> str:
    if patched("use-new-step"):
        await new_step("a")
    else:
        await old_step("a")
    await sleep("1h")
    if patched("second"):
        return await new_step("b")
    return await old_step("b")


async def test_old_runs_keep_the_old_way_and_new_ones_take_the_new(harness: Harness):
    before = await start(define(old))
    await deploy(harness, patched_body)
    after = await start(define(patched_body))
    assert await before.result() == "b"
    assert await after.result() == "b"
    assert sorted(done) == ["new a", "new b", "new b", "old a"], (
        "the old run had not come to the second place when the change came"
    )


async def test_a_patch_that_was_taken_stays_taken(harness: Harness):
    run = await start(define(patched_body))
    await harness.until_blocked()
    await harness.crash()
    await harness.skip("30m")
    await harness.crash()
    assert await run.result() == "b"
    assert done == ["new a", "new b"]


async def test_the_workflows_version_is_on_the_run(harness: Harness):
    first, second = define(old), define(patched_body)
    assert first.version != second.version
    assert first.version == code_version(old.__code__)
    run = await start(second)
    assert (await run.record()).version == second.version

    @workflow(version="2026-11")
    async def named() -> None: ...

    assert (await (await start(named)).record()).version == "2026-11"


async def test_the_length_of_a_sleep_may_change_and_the_recorded_moment_counts(harness: Harness):
    async def longer() -> str:
        await old_step("a")
        await sleep("100h")
        return await old_step("b")

    began = harness.clock.now()
    run = await start(define(old))
    await deploy(harness, longer)
    assert await run.result() == "b"
    assert harness.clock.now() - began < 2 * 3600


async def test_sets_among_the_arguments_replay_whatever_their_order(harness: Harness):
    @step
    async def join(words: set[str]) -> int:
        return len(words)

    @workflow
    async def flow(count: int) -> int:
        found = await join({f"word{n}" for n in range(count)})
        await asyncio.sleep(60)
        return found

    run = await start(flow, 50)
    await harness.until_blocked()
    reverse = "UPDATE events SET value = ?, hash = ? WHERE run_id = ? AND type = 'step.started'"
    from holdfast.store.sqlite.events import event_hash

    event = next(e for e in await run.events() if e.type == "step.started")
    import json

    words = json.loads(event.value or b"")["words"]
    changed = event._replace(value=json.dumps({"words": words[::-1]}).encode())
    row = (changed.value, event_hash(changed), run.id)
    harness.engine.store._database.connection.execute(reverse, row)  # type: ignore[attr-defined]
    await harness.crash()
    assert await run.result() == 50


def test_two_workflows_of_one_name_are_refused():
    source = "async def same(): ..."
    spaces: list[dict[str, Any]] = [{}, {}]
    for number, space in enumerate(spaces):
        exec(compile(source, f"file{number}.py", "exec"), space)
    workflow(spaces[0]["same"])
    workflow(spaces[0]["same"])
    with pytest.raises(UsageError, match="two workflows are named 'same'"):
        workflow(spaces[1]["same"])


async def test_a_first_step_called_again_after_a_crash_is_given_the_same_time_and_chance():
    """The worker dies before anything but the claim is on disk."""
    seen: list[tuple[str, float, str]] = []
    begun = asyncio.Event()

    @step
    async def pay(at: str, chance: float, id: str) -> str:
        seen.append((at, chance, id))
        begun.set()
        if len(seen) < 3:
            await asyncio.Event().wait()
        return at

    @workflow
    async def invoice() -> str:
        return await pay(now().isoformat(), random(), str(uuid4()))

    # What nothing waits for (the run began, the step began) is never written.
    async with Harness(settings=Settings(unhurried_seconds=3600)) as harness:
        run = await start(invoice)
        for _ in range(2):
            await begun.wait()
            begun.clear()
            assert [event.type for event in await run.events()] == ["run.created"]
            harness.clock.advance(harness.clock.now() + 60)
            await harness.crash()
        assert await run.result() == seen[0][0]
        assert len(seen) == 3 and len(set(seen)) == 1
        [began] = [event for event in await run.events() if event.type == "run.started"]
        assert datetime.fromtimestamp(began.at, UTC).isoformat() == seen[0][0]
