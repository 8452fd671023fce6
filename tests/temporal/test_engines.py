"""What a workflow does, it does on every engine: the same cases on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import engine_flows as flows
import pytest
from running_engine import Running

from holdfast import RunCancelled, RunFailed, get_run, list_runs, send_event, start
from holdfast.runtime.client import RunHandle, receive_webhook
from waiting import LIMIT


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(LIMIT):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


async def run(flow: Any, *args: Any) -> Any:
    return await (await start(flow, *args)).result()


async def is_open(handle: RunHandle[Any], name: str) -> bool:
    """Whether the run waits for this, and everybody can see it."""
    return any(s.name == name and s.status == "waiting" for s in await handle.steps())


def test_steps_are_carried_out_in_order(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.counts, 3)
        assert await handle.result() == [0, 1, 2]
        steps = await handle.steps()
        assert [(s.name, s.key, s.status) for s in steps] == [
            ("add", f"0/{i}", "completed") for i in (1, 2, 3)
        ]
        types = [event.type for event in await handle.events()]
        assert types[:2] == ["run.created", "run.started"]
        assert types[2:-1] == ["step.started", "step.completed"] * 3
        assert types[-1] == "run.completed"

    engine.do(case())


def test_branches_go_on_side_by_side(engine: Running) -> None:
    assert engine.do(run(flows.fans_out, 5)) == 30


def test_time_and_chance_are_the_engines(engine: Running) -> None:
    result = engine.do(run(flows.time_and_chance))
    assert result == {
        "loud": "THREAD",
        "later": True,
        "late": True,
        "chance": True,
        "id": 36,
        "patched": True,
    }


def test_what_fails_is_tried_again_as_it_says(engine: Running) -> None:
    name = f"{engine.kind} tries"

    async def case() -> None:
        handle = await start(flows.tries, name)
        assert await handle.result() == {
            "at last": 3,
            "fatal": "never again",
            "later": "done",
            "slow": "StepTimeout",
        }
        attempts = {s.name: s.attempts for s in await handle.steps()}
        assert attempts == {"works_at_last": 3, "hopeless": 1, "later": 2, "slow": 1}

    engine.do(case())
    assert flows.DONE[f"{name} at last"] == 3
    assert flows.DONE[f"{name} hopeless"] == 1


def test_a_run_whose_body_fails_says_why(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.fails)
        with pytest.raises(RunFailed, match="the body fails"):
            await handle.result()
        assert (await handle.record()).status == "failed"

    engine.do(case())


def test_an_event_reaches_the_run_that_waits_for_it(engine: Running) -> None:
    async def case() -> Any:
        handle = await start(flows.waits_for_orders, 7)
        await until(lambda: is_open(handle, "paid"))
        await send_event("paid", {"order": 6})
        await send_event("paid", {"order": 7, "by": "card"})
        for size in (1, 2, 3):
            await send_event("sized-7", {"size": size})
        return await handle.result()

    assert engine.do(case()) == [{"order": 7, "by": "card"}, {"size": 3}, False]


def test_children_are_runs_of_their_own(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.engine_parent)
        result = await handle.result()
        assert result == {"children": [101, 102], "failed": "too few", "other": 107}
        page = await list_runs(parent=handle.id)
        statuses = sorted((r.workflow, r.status) for r in page.runs)
        assert statuses == [("engine_child", "completed")] * 3 + [("engine_child", "failed")]

    engine.do(case())


def test_a_cancelled_run_cleans_up(engine: Running) -> None:
    name = f"{engine.kind} cancel"

    async def case() -> None:
        handle = await start(flows.cleans_up, name)
        await until(lambda: began(name))
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        await until(lambda: stopped(name))

    async def began(name: str) -> bool:
        return flows.DONE[f"{name} began"] == 1

    async def stopped(name: str) -> bool:
        return flows.DONE[f"{name} stopped"] == 1

    engine.do(case())
    assert flows.DONE[f"{name} cleaned"] == 1


def test_a_run_can_be_found_seen_and_called(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.knows_itself, engine.kind)
        await until(lambda: is_open(handle, "@webhook/0/4"))
        found = await list_runs(attributes={"customer": engine.kind})
        assert [r.id for r in found.runs] == [handle.id]
        assert await handle.published("progress") == 50
        created = next(e for e in await handle.events() if e.type == "webhook.created")
        await receive_webhook(created.facts["token"], {"yes": 1})
        result = await handle.result()
        assert result == {"posted": {"yes": 1}, "attributes": {"customer": engine.kind}}
        assert [piece async for piece in handle.stream()] == [{"percent": 50}, {"percent": 100}]

    engine.do(case())


def test_a_run_whose_time_is_over_cleans_up_and_fails(engine: Running) -> None:
    name = f"{engine.kind} too long"

    async def case() -> None:
        with pytest.raises(RunFailed, match="had not ended within"):
            await run(flows.too_long, name)

    engine.do(case())
    assert flows.DONE[name] == 1


def test_a_failed_run_goes_on_where_it_failed(engine: Running) -> None:
    name = f"{engine.kind} breaks"

    async def case() -> None:
        handle = await start(flows.breaks_once, name)
        with pytest.raises(RunFailed):
            await handle.result()
        await handle.retry()
        assert await handle.result() == [3, "mended"]
        assert [s.attempts for s in await handle.steps()] == [1, 2]

    engine.do(case())


def test_a_fork_goes_on_from_a_step(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.counts, 3)
        await handle.result()
        other = await handle.fork("0/2", input={"a": 40})
        assert await other.result() == [0, 41, 2]
        other = await handle.fork("0/2", result=9)
        assert await other.result() == [0, 9, 2]

    engine.do(case())


def test_a_paused_run_begins_nothing_until_it_is_resumed(engine: Running) -> None:
    name = f"{engine.kind} pauses"

    async def case() -> None:
        handle = await start(flows.pauses, name)
        await until(lambda: is_open(handle, f"{name} 0"))
        await handle.pause()
        await until(lambda: has_status(handle, "paused"))
        await send_event(f"{name} 0")
        assert await handle.status() == "paused"
        await handle.resume()
        await until(lambda: is_open(handle, f"{name} 1"))
        await send_event(f"{name} 1")
        await send_event(f"{name} 2")
        assert await handle.result() == 3

    engine.do(case())


async def has_status(handle: RunHandle[Any], status: str) -> bool:
    return await handle.status() == status


def test_no_more_runs_are_under_way_than_may_be(engine: Running) -> None:
    a, b = f"{engine.kind} a", f"{engine.kind} b"

    async def case() -> None:
        first = await start(flows.one_order_at_a_time, a)
        second = await start(flows.one_order_at_a_time, b)
        await until(lambda: is_open(first, a))
        assert await second.status() == "queued"
        await send_event(a)
        assert await first.result() == a
        await send_event(b)
        assert await second.result() == b

    engine.do(case())


def test_a_key_starts_one_run(engine: Running) -> None:
    async def case() -> None:
        keyed = flows.counts.options(key=f"{engine.kind} once")
        first, second = await start(keyed, 1), await start(keyed, 1)
        assert first.id == second.id
        assert await (await get_run(second.id)).result() == [0]

    engine.do(case())
