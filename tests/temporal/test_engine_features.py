"""What surrounds a run, on every engine: updates, schedules, events that start runs, versions."""

from __future__ import annotations

from typing import Any

import engine_flows as flows
import pytest
from running_engine import Running
from test_engines import has_status, is_open, until

from holdfast import (
    RunFailed,
    RunStuck,
    UpdateRejected,
    create_schedule,
    every,
    get_run,
    list_runs,
    send_event,
    start,
    step,
    wait_for_event,
    workflow,
)


def test_an_update_is_answered(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.takes_updates)
        assert await handle.update("add", 5) == 1
        with pytest.raises(UpdateRejected, match="nothing in it"):
            await handle.update("add", None)
        assert await handle.update("add", 7) == 2
        assert await handle.result() == [5, 7]

    engine.do(case())


def test_an_event_starts_a_run(engine: Running) -> None:
    async def case() -> None:
        await send_event("engine.order", {"id": 41})
        run = await until(lambda: newest("starts_by_event"))
        assert run.key == "41"
        assert await (await get_run(run.id)).result() == 42

    engine.do(case())


async def newest(name: str) -> Any:
    return next(iter((await list_runs(workflow=name)).runs), None)


def test_a_schedule_starts_runs(engine: Running) -> None:
    async def case() -> None:
        handle = await create_schedule(flows.counts, every("1h", arguments={"n": 2}, name="often"))
        run_id = await handle.trigger()
        assert run_id is not None
        assert await (await get_run(run_id)).result() == [0, 1]
        await handle.delete()

    engine.do(case())


def test_what_is_to_happen_on_failure_happens(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.has_a_handler)
        with pytest.raises(RunFailed, match="never again"):
            await handle.result()
        run = await until(lambda: newest("told_of_failure"))
        assert await (await get_run(run.id)).result() == "HAS_A_HANDLER: NEVER AGAIN"

    engine.do(case())


def test_payloads_may_be_larger_than_temporals_limits(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.carries_much, "x" * 800_000)
        await until(lambda: is_open(handle, "much"))
        await send_event("much", "x" * 2_500_000, run=handle.id)
        assert await handle.result() == 3 * 2_400_000 + 2_500_000

    engine.do(case())


def test_a_run_that_sleeps_is_shown_as_it_is(engine: Running) -> None:
    async def case() -> None:
        handle = await start(flows.sleeps_after_a_step)
        await until(lambda: is_open(handle, "sleep"))
        assert [(s.name, s.status) for s in await handle.steps()] == [
            ("add", "completed"),
            ("sleep", "waiting"),
        ]
        await handle.cancel()
        await until(lambda: has_status(handle, "cancelled"))

    engine.do(case())


def test_a_run_that_does_not_fit_its_code_is_kept_until_it_does(engine: Running) -> None:
    name = f"changes-{engine.kind}"

    def define(order: list[str]) -> Any:
        @workflow(name=name)
        async def changes() -> list[str]:
            said: list[str] = []
            for what in order:
                said.append(await say(what))
                if len(said) == 1:
                    await wait_for_event(name, timeout="5m")
            return said

        return changes

    async def case() -> None:
        handle = await start(define(["a", "b"]))
        await until(lambda: is_open(handle, name))
        await handle.pause()
        await until(lambda: has_status(handle, "paused"))
        define(["z", "b"])
        await handle.resume()
        await until(lambda: has_status(handle, "stuck"))
        with pytest.raises(RunStuck):
            await handle.result()
        define(["a", "b"])
        await handle.resume()
        await send_event(name)
        assert await handle.result() == ["a", "b"]

    engine.do(case())


@step
async def say(what: str) -> str:
    return what
