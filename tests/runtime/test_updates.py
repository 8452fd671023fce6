"""Updates: events with an answer.

The behaviours are those that Temporal documents for its updates: carried out once per id, the
same answer for whoever asks again, a clear error when the run ends first, in the order sent.
"""

import asyncio
from typing import Any

import pytest

from holdfast import (
    CodecError,
    FatalError,
    NotFound,
    RunFailed,
    UpdateMismatch,
    UpdateRejected,
    UpdateTimeout,
    UpdateUnanswered,
    UsageError,
    get_run,
    send_event,
    sleep,
    start,
    step,
    wait_for_event,
    wait_for_update,
    workflow,
)
from holdfast.testing import Harness

log: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    log.clear()


@step(retries=0)
async def do(what: str) -> str:
    log.append(what)
    return what


@workflow
async def basket() -> list[Any]:
    """Takes items until it is closed."""
    items: list[Any] = []
    while True:
        update = await wait_for_update("add", timeout="1h")
        if not update:
            return items
        if update.payload is None:
            update.reject("there is nothing in it")
            continue
        items.append(await do(f"add {update.payload}"))
        update.reply(len(items))


async def test_an_update_is_answered_with_what_the_body_replies(harness: Harness):
    run = await start(basket)
    assert await run.update("add", "milk") == 1
    assert await run.update("add", {"bread": 2}) == 2
    assert await run.result() == ["add milk", "add {'bread': 2}"]


async def test_an_update_that_was_sent_before_the_run_began_to_wait_is_answered(harness: Harness):
    @workflow
    async def late() -> None:
        await sleep("1h")
        update = await wait_for_update("hello", timeout="1h")
        assert update
        update.reply("hi")

    run = await start(late)
    asking = asyncio.create_task(run.update("hello"))
    await harness.until_blocked()
    await run.result()
    assert await asking == "hi"


async def test_the_same_id_is_carried_out_once_and_gives_the_same_answer(harness: Harness):
    run = await start(basket)
    answers = await asyncio.gather(*(run.update("add", "milk", id="a") for _ in range(5)))
    assert answers == [1] * 5
    await run.update("add", "bread", id="b")
    await harness.crash()
    assert await run.update("add", "milk", id="a") == 1
    assert await run.result() == ["add milk", "add bread"]
    # Also once the run has ended, and from another handle.
    assert await (await get_run(run.id)).update("add", "bread", id="b") == 2
    assert log == ["add milk", "add bread"]
    for other in [("add", "eggs"), ("drop", "milk")]:
        with pytest.raises(UpdateMismatch):
            await run.update(*other, id="a")


async def test_the_same_id_for_another_run_is_another_update(harness: Harness):
    one, other = await start(basket), await start(basket)
    assert await one.update("add", "milk", id="a") == 1
    assert await other.update("add", "bread", id="a") == 1


async def test_a_rejection_reaches_the_sender_with_its_error(harness: Harness):
    @workflow
    async def strict() -> None:
        for _ in range(2):
            update = await wait_for_update("set", timeout="1h")
            assert update
            update.reject(ValueError("too much") if update.payload else "too little")

    run = await start(strict)
    with pytest.raises(UpdateRejected, match="too little"):
        await run.update("set", 0)
    with pytest.raises(UpdateRejected, match="too much") as caught:
        await run.update("set", 9, id="nine")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(UpdateRejected, match="too much"):
        await run.update("set", 9, id="nine")


async def test_an_update_is_answered_once(harness: Harness):
    @workflow
    async def eager() -> str:
        update = await wait_for_update("ask", timeout="1h")
        assert update
        update.reply("first")
        try:
            update.reply("second")
        except UsageError:
            return "refused"
        return "taken"

    run = await start(eager)
    assert await run.update("ask", id="a") == "first"
    assert await run.result() == "refused"
    assert await run.update("ask", id="a") == "first"


@pytest.mark.parametrize("received", [True, False])
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_run_that_ends_without_an_answer_says_so(
    harness: Harness, end: str, received: bool
):
    @workflow
    async def silent() -> None:
        if received:
            await wait_for_update("ask", timeout="1h")
        reply = await wait_for_event("end", timeout="9h")
        if reply and reply.payload == "failed":
            raise FatalError("broken")

    run = await start(silent)
    asking = asyncio.create_task(run.update("ask", id="a"))
    await harness.until_blocked()
    if end == "cancelled":
        await run.cancel()
    else:
        await send_event("end", end)
    with pytest.raises(UpdateUnanswered, match=rf"{run.id} (was )?{end}"):
        await asking
    with pytest.raises(UpdateUnanswered):
        await run.update("ask", id="a")
    with pytest.raises(UpdateUnanswered, match="nobody is left"):
        await run.update("ask", id="b")


async def test_a_retried_run_answers_what_it_had_not_answered(harness: Harness):
    broken = [True]

    @step(retries=0)
    async def fragile() -> None:
        if broken[0]:
            raise FatalError("broken")

    @workflow
    async def flow() -> None:
        update = await wait_for_update("ask", timeout="1h")
        assert update
        await fragile()
        update.reply("at last")

    run = await start(flow)
    with pytest.raises(UpdateUnanswered, match="failed"):
        await run.update("ask", id="a")
    with pytest.raises(RunFailed):
        await run.result()
    broken[0] = False
    await run.retry()
    assert await run.update("ask", id="a") == "at last"


async def test_updates_are_taken_in_the_order_they_were_sent(harness: Harness):
    run = await start(basket)
    asking = [asyncio.create_task(run.update("add", number)) for number in range(8)]
    assert await asyncio.gather(*asking) == list(range(1, 9))
    assert log == [f"add {number}" for number in range(8)]


async def test_a_sender_that_gave_up_gets_the_answer_when_it_asks_again(harness: Harness):
    @workflow
    async def slow() -> None:
        update = await wait_for_update("ask", timeout="1h")
        await wait_for_event("now", timeout="9h")
        assert update
        update.reply("here you are")

    run = await start(slow)
    with pytest.raises(UpdateTimeout):
        await run.update("ask", id="a", timeout=0.01)
    await send_event("now")
    await run.result()
    assert await run.update("ask", id="a") == "here you are"


async def test_a_workflow_waits_durably_for_the_answer_of_another(harness: Harness):
    @workflow
    async def slow() -> None:
        for _ in range(2):
            update = await wait_for_update("double", timeout="90h")
            assert update
            await sleep("1h")
            update.reply(2 * update.payload)

    @workflow
    async def asking(run_id: str) -> list[int]:
        run = await get_run(run_id)
        first = await run.update("double", 4)
        return [first, await run.update("double", first)]

    other = await start(slow)
    run = await start(asking, other.id)
    for _ in range(4):
        await harness.skip("20m")
        await harness.crash()
    assert await run.result() == [8, 16]
    assert [e.type for e in await other.events()].count("wait.received") == 2


async def test_a_workflow_is_told_of_a_rejection_an_end_and_its_own_time_limit(harness: Harness):
    @workflow
    async def moody() -> None:
        update = await wait_for_update("ask", timeout="90h")
        assert update
        update.reject("no")
        await sleep("10h")

    @workflow
    async def asking(run_id: str) -> list[str]:
        found: list[str] = []
        run = await get_run(run_id)
        for timeout in ("1h", "1h", None):
            try:
                await run.update("ask", timeout=timeout)
            except (UpdateRejected, UpdateTimeout, UpdateUnanswered) as error:
                found.append(type(error).__name__)
        try:
            await run.update("ask")
        except UpdateUnanswered as error:
            found.append(error.message)
        return found

    other = await start(moody)
    run = await start(asking, other.id)
    assert await run.result() == [
        "UpdateRejected",
        "UpdateTimeout",
        "UpdateUnanswered",
        f"{other.id} is completed: nobody is left to answer 'ask'",
    ]


async def test_a_fork_does_not_answer_for_the_run_it_was_forked_from(harness: Harness):
    @workflow
    async def flow() -> None:
        update = await wait_for_update("ask", timeout="1h")
        assert update
        name = await do("think")
        await wait_for_event("now", timeout="9h")
        update.reply(name)

    run = await start(flow)
    asking = asyncio.create_task(run.update("ask"))
    await harness.until_blocked()
    fork = await run.fork("0/2", result="forked")
    await harness.until_blocked()
    await send_event("now", run=fork.id)
    await fork.result()
    assert not asking.done()
    await send_event("now", run=run.id)
    assert await asking == "think"


async def test_what_can_not_be_an_update_is_refused(harness: Harness):
    run = await start(basket)
    with pytest.raises(UsageError):
        await run.update("@add")
    with pytest.raises(CodecError):
        await run.update("add", object())
    with pytest.raises(NotFound):
        await get_run("run_nobody")
