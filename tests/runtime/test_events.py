"""Waiting for events, webhooks and their time limits."""

import asyncio

import pytest

from holdfast import (
    NotFound,
    NotInWorkflow,
    ReceivedEvent,
    RunFailed,
    TimedOut,
    UsageError,
    create_webhook,
    receive_webhook,
    send_event,
    sleep,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.testing import Harness


@workflow
async def approved_order(order: int) -> str:
    reply = await wait_for_event("approval", match={"order": order}, timeout="24h")
    match reply:
        case TimedOut():
            return "timed out"
        case ReceivedEvent(payload=payload):
            return f"by {payload['by']}"


async def test_an_event_that_matches_ends_the_wait(harness: Harness):
    run = await start(approved_order, 7)
    await harness.until_blocked()
    await send_event("approval", {"order": 8, "by": "x"})
    await send_event("other", {"order": 7, "by": "y"})
    await harness.until_blocked()
    assert not (await run.record()).ended
    await send_event("approval", {"order": 7, "by": "ada"})
    assert await run.result() == "by ada"


async def test_a_wait_without_an_event_returns_the_time_out_as_a_value(harness: Harness):
    began = harness.clock.now()
    assert await (await start(approved_order, 7)).result() == "timed out"
    assert harness.clock.now() - began == pytest.approx(86400, abs=2)


async def test_an_event_sent_before_the_wait_begins_is_delivered(harness: Harness):
    @workflow
    async def late() -> str:
        await sleep("1h")
        reply = await wait_for_event("go", timeout="1h")
        return "received" if reply else "timed out"

    await send_event("go", {"before": "the run"})
    await harness.skip("1m")
    run = await start(late)
    await harness.until_blocked()
    await send_event("go", {})
    assert await run.result() == "received"
    assert await (await start(late)).result() == "timed out", "events from before a run are not its"


async def test_each_event_is_taken_once_by_a_run_and_by_every_run_that_waits(harness: Harness):
    @workflow
    async def twice(name: str) -> list[bool]:
        first = await wait_for_event("tick", timeout="1h")
        second = await wait_for_event("tick", timeout="1h")
        return [bool(first), bool(second)]

    runs = [await start(twice, name) for name in "ab"]
    await harness.until_blocked()
    await send_event("tick")
    assert [await run.result() for run in runs] == [[True, False], [True, False]]


async def test_two_waits_of_one_run_do_not_take_the_same_event(harness: Harness):
    @workflow
    async def both() -> list[bool]:
        waits = [wait_for_event("tick", timeout="1h") for _ in range(2)]
        return [bool(each) for each in await asyncio.gather(*waits)]

    run = await start(both)
    await harness.until_blocked()
    await send_event("tick")
    assert sorted(await run.result()) == [False, True]


async def test_an_event_with_a_known_id_is_taken_once(harness: Harness):
    @workflow
    async def count() -> int:
        number = 0
        while await wait_for_event("tick", timeout="1h"):
            number += 1
        return number

    run = await start(count)
    await harness.until_blocked()
    assert await send_event("tick", id="one") is True
    assert await send_event("tick", id="one") is False
    assert await run.result() == 1


async def test_a_predicate_narrows_the_match_and_its_error_reaches_the_body(harness: Harness):
    @workflow
    async def large() -> object:
        reply = await wait_for_event("sale", where=lambda p: p["amount"] > 100, timeout="1h")
        return reply.payload if isinstance(reply, ReceivedEvent) else None

    run = await start(large)
    await harness.until_blocked()
    await send_event("sale", {"amount": 5})
    await send_event("sale", {"amount": 500})
    assert await run.result() == {"amount": 500}

    run = await start(large)
    await harness.until_blocked()
    await send_event("sale", {})
    with pytest.raises(RunFailed, match="amount"):
        await run.result()


async def test_nested_fields_match_by_dots_and_types_matter(harness: Harness):
    @workflow
    async def nested() -> bool:
        match = {"data.order.id": 5, "ok": True}
        return bool(await wait_for_event("x", match=match, timeout="1h"))

    run = await start(nested)
    await harness.until_blocked()
    await send_event("x", {"data": {"order": {"id": "5"}}, "ok": True})
    await send_event("x", {"data": {"order": 5}, "ok": True})
    await send_event("x", [1])
    await harness.until_blocked()
    assert not (await run.record()).ended
    await send_event("x", {"data": {"order": {"id": 5}}, "ok": True})
    assert await run.result() is True


async def test_an_event_for_one_run_reaches_no_other(harness: Harness):
    runs = [await start(approved_order, 1) for _ in range(2)]
    await harness.until_blocked()
    await send_event("approval", {"order": 1, "by": "me"}, run=runs[1].id)
    assert await runs[1].result() == "by me"
    assert await runs[0].result() == "timed out"
    with pytest.raises(NotFound):
        await send_event("approval", run="run_none")


async def test_a_waiting_run_that_was_evicted_is_woken_by_its_event(harness: Harness):
    run = await start(approved_order, 3)
    await harness.skip("1h")
    assert await run.status() == "waiting"
    assert not harness.engine.runs
    await send_event("approval", {"order": 3, "by": "eve"})
    assert await run.result() == "by eve"


async def test_a_webhook_has_an_unguessable_token_and_wakes_its_run(harness: Harness):
    tokens: list[str] = []

    @step
    async def publish(path: str) -> None:
        tokens.append(path.removeprefix("/hooks/"))

    @workflow
    async def hooked() -> object:
        hook = await create_webhook()
        await publish(hook.path)
        reply = await hook.wait(timeout="7d")
        return reply.payload if isinstance(reply, ReceivedEvent) else None

    runs = [await start(hooked) for _ in range(2)]
    await harness.until_blocked()
    await harness.crash()
    assert len(set(tokens)) == 2
    assert all(len(token) >= 43 for token in tokens)
    await receive_webhook(tokens[1], {"answer": 42})
    assert await runs[1].result() == {"answer": 42}
    assert await runs[0].result() is None
    with pytest.raises(NotFound):
        await receive_webhook(tokens[0], {})
    with pytest.raises(NotFound):
        await receive_webhook("guess", {})


async def test_an_event_sent_by_a_workflow_is_sent_once(harness: Harness):
    @workflow
    async def sender() -> bool:
        return await send_event("approval", {"order": 1, "by": "a workflow"})

    run = await start(approved_order, 1)
    assert await (await start(sender)).result() is True
    assert await run.result() == "by a workflow"


async def test_waits_belong_into_workflows_and_names_with_at_are_ours(harness: Harness):
    with pytest.raises(NotInWorkflow):
        await wait_for_event("x", timeout=1)
    with pytest.raises(UsageError, match="reserved"):
        await send_event("@run/x")
