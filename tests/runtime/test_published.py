"""Values that a run publishes: readable at once, published once, kept by forks and retries."""

import asyncio

import pytest

from holdfast import (
    CodecError,
    FatalError,
    NotInWorkflow,
    RunFailed,
    get_run,
    publish,
    sleep,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.testing import Harness


async def test_a_published_value_can_be_read_while_the_run_goes_on(harness: Harness):
    @workflow
    async def counting() -> None:
        for number in range(3):
            publish("progress", {"done": number})
            await sleep("1h")
        publish("mood", None)

    run = await start(counting)
    await harness.skip("90m")
    assert await run.published("progress") == {"done": 1}
    assert await run.published("mood") is None
    await harness.crash()
    await run.result()
    assert await (await get_run(run.id)).published() == {"progress": {"done": 2}, "mood": None}
    types = [event.type for event in await run.events()]
    assert types.count("value.published") == 4, "published again by a replay"


async def test_a_step_publishes_from_the_loop_and_from_a_thread(harness: Harness):
    @step
    async def on_the_loop() -> None:
        publish("step", "on the loop")

    @step
    def in_a_thread() -> None:
        publish("thread", "in a thread")
        publish("thread", "later")

    @workflow
    async def flow() -> None:
        await asyncio.gather(on_the_loop(), in_a_thread())

    run = await start(flow)
    await run.result()
    assert await run.published() == {"step": "on the loop", "thread": "later"}


async def test_what_can_not_be_stored_is_refused_where_it_is_published(harness: Harness):
    @workflow
    async def flow() -> str:
        try:
            publish("it", object())
        except CodecError:
            return "refused"
        return "taken"

    assert await (await start(flow)).result() == "refused"


async def test_values_survive_a_retry_and_go_with_a_fork(harness: Harness):
    broken = [True]

    @step(retries=0)
    async def fragile() -> None:
        if broken[0]:
            raise FatalError("broken")

    @workflow
    async def flow() -> None:
        publish("phase", "begun")
        await fragile()
        await wait_for_event("go", timeout="1h")
        publish("phase", "ended")

    run = await start(flow)
    with pytest.raises(RunFailed):
        await run.result()
    assert await run.published("phase") == "begun"
    broken[0] = False
    await run.retry()
    await run.result()
    assert await run.published("phase") == "ended"
    fork = await run.fork("0/2")
    assert await fork.published("phase") == "begun"
    await fork.result()
    assert [e.type for e in await run.events()].count("value.published") == 2


def test_publishing_outside_of_a_run_is_refused():
    with pytest.raises(NotInWorkflow):
        publish("progress", 1)
