"""Runs that go on as new ones, and what becomes of a key after the end."""

import asyncio
from typing import Any

import pytest

from holdfast import (
    CodecError,
    Concurrency,
    FatalError,
    KeyUsed,
    NotInWorkflow,
    RunCancelled,
    RunFailed,
    RunHandle,
    UpdateUnanswered,
    continue_as_new,
    get_run,
    list_runs,
    publish,
    run_context,
    send_event,
    set_attributes,
    sleep,
    start,
    step,
    wait_for_event,
    wait_for_update,
    workflow,
)
from holdfast.testing import Harness

done: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    done.clear()


@step
async def do(what: str) -> str:
    done.append(what)
    return what


@workflow
async def counting_by_chain(number: int, until: int) -> list[Any]:
    await do(f"count {number}")
    await sleep("1h")
    if number < until:
        continue_as_new(number + 1, until=until)
    return [number, run_context().id, run_context().key]


async def chain_of(run: RunHandle[Any]) -> list[str]:
    """The ids of a chain, by the records."""
    ids, record = [run.id], await run.record()
    while record.continued_as is not None:
        successor = await (await get_run(record.continued_as)).record()
        assert successor.continued_from == record.id
        assert record.status == "continued"
        record = successor
        ids.append(record.id)
    return ids


async def test_a_run_goes_on_as_a_new_one_and_its_result_is_the_last_ones(harness: Harness):
    run = await start(counting_by_chain.options(key="k", attributes={"team": "a"}), 1, 4)
    number, last, key = await run.result()
    assert (number, key) == (4, "k")
    ids = await chain_of(run)
    assert ids[-1] == last
    assert len(ids) == len(set(ids)) == 4
    assert done == [f"count {n}" for n in range(1, 5)]
    for id in ids:
        handle = await get_run(id)
        assert (await handle.record()).attributes == {"team": "a"}
        assert await handle.result() == [4, last, "k"]
        assert len(await handle.events()) < 10


async def test_a_chain_survives_crashes_at_every_hour(harness: Harness):
    run = await start(counting_by_chain, 1, 5)
    for _ in range(9):
        await harness.skip("31m")
        await harness.crash()
    assert (await run.result())[0] == 5
    assert done == [f"count {n}" for n in range(1, 6)]


async def test_a_parent_waits_for_the_end_of_the_chain(harness: Harness):
    @workflow
    async def parent() -> list[Any]:
        detached = await start(counting_by_chain, 1, 2)
        return [(await counting_by_chain(1, 3))[0], (await detached.result())[0], run_context().id]

    run = await start(parent)
    assert await run.result() == [3, 2, run.id]
    children = (await list_runs(parent=run.id)).runs
    assert [child.status for child in children].count("continued") == 3
    assert len(children) == 5


async def test_cancelling_reaches_the_run_that_the_chain_has_come_to(harness: Harness):
    @workflow
    async def parent() -> None:
        await counting_by_chain(1, 1000)

    by_parent, by_handle = await start(parent), await start(counting_by_chain, 1, 1000)
    await harness.skip("5h")
    for run in (by_parent, by_handle):
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
    await harness.until_blocked()
    live = [r for r in (await list_runs(limit=100)).runs if not r.ended]
    assert live == []


async def test_events_that_were_not_taken_go_with_the_run_and_taken_ones_do_not(
    harness: Harness,
):
    @workflow
    async def eating(eaten: list[str]) -> list[str]:
        event = await wait_for_event("food", timeout="1h")
        if event:
            continue_as_new([*eaten, event.payload])
        return eaten

    run = await start(eating, [])
    await harness.until_blocked()
    for n in range(3):
        await send_event("food", f"for all {n}")
        await send_event("food", f"for it {n}", run=run.id)
    await harness.until_blocked()
    await send_event("food", "late", run=run.id)  # by the id of a run that has gone on
    await harness.crash()
    expected = [f"for {who} {n}" for n in range(3) for who in ("all", "it")]
    assert await run.result() == [*expected, "late"]


async def test_an_update_is_answered_by_the_run_that_receives_it(harness: Harness):
    @workflow
    async def serving(served: int) -> int:
        update = await wait_for_update("ask", timeout="1h")
        if update and update.payload == "forget":
            await wait_for_event("go", timeout="1h")
        elif update:
            update.reply([served, run_context().id])
        if update:
            continue_as_new(served + 1)
        return served

    run = await start(serving, 0)
    answers = await asyncio.gather(*(run.update("ask", id=f"u{n}") for n in range(3)))
    assert [number for number, _ in answers] == [0, 1, 2]
    assert [id for _, id in answers] == (await chain_of(run))[:3]
    assert await run.update("ask", id="u1") == answers[1]
    asking = asyncio.create_task(run.update("ask", "forget"))
    await harness.until_blocked()
    await send_event("go")
    with pytest.raises(UpdateUnanswered, match="went on as a new run"):
        await asking


async def test_finally_blocks_run_and_published_values_go_with_the_run(harness: Harness):
    @workflow
    async def flow(n: int) -> int:
        publish("n", n)
        set_attributes(n=n)
        if n == 2:
            return n
        try:
            continue_as_new(n + 1)
        finally:
            await do(f"clean up {n}")

    run = await start(flow, 0)
    assert await run.result() == 2
    assert done == ["clean up 0", "clean up 1"]
    ids = await chain_of(run)
    assert [await (await get_run(id)).published("n") for id in ids] == [0, 1, 2]


async def test_a_run_that_goes_on_keeps_its_place_under_the_limit(harness: Harness):
    @workflow(concurrency=Concurrency(key="lane", per_key=1))
    async def flow(lane: str, n: int = 0) -> None:
        await do(f"{lane} {n}")
        await sleep("1h")
        if n < 2:
            continue_as_new(lane, n + 1)

    runs = [await start(flow, "a"), await start(flow, "a")]
    await asyncio.gather(*(run.result() for run in runs))
    assert done == ["a 0", "a 1", "a 2"] * 2


async def test_the_new_run_knows_where_it_comes_from(harness: Harness):
    @workflow
    async def flow(before: str | None = None) -> list[str | None]:
        if before is None:
            continue_as_new(run_context().id)
        return [before, run_context().continued_from]

    run = await start(flow)
    assert await run.result() == [run.id, run.id]


async def test_arguments_that_can_not_be_stored_fail_where_they_are_given(harness: Harness):
    @workflow
    async def flow(number: int) -> str:
        try:
            continue_as_new(object())
        except CodecError:
            return "refused"

    assert await (await start(flow, 1)).result() == "refused"


def test_going_on_outside_of_a_workflow_is_refused():
    with pytest.raises(NotInWorkflow):
        continue_as_new()


# --- what becomes of a key ---


@workflow
async def keyed(text: str) -> str:
    await do(text)
    if text == "bad":
        raise FatalError("bad")
    return text


async def test_by_default_a_key_gives_the_run_that_had_it_first(harness: Harness):
    first = await start(keyed.options(key="k"), "one")
    await first.result()
    assert (await start(keyed.options(key="k"), "two")).id == first.id


async def test_a_key_can_be_refused_after_the_end_and_not_before(harness: Harness):
    once = keyed.options(key="k", key_policy="refuse")
    runs = await asyncio.gather(*(start(once, "one") for _ in range(5)))
    assert len({run.id for run in runs}) == 1
    await runs[0].result()
    with pytest.raises(KeyUsed, match=runs[0].id):
        await start(once, "two")
    assert done == ["one"]


async def test_a_key_can_start_anew_after_the_end_and_only_once_for_all_who_ask(harness: Harness):
    anew = keyed.options(key="k", key_policy="start_new")
    first = await start(anew, "one")
    await first.result()
    runs = await asyncio.gather(*(start(anew, "two") for _ in range(5)))
    assert len({run.id for run in runs}) == 1
    assert runs[0].id != first.id
    assert await runs[0].result() == "two"
    assert (await start(keyed.options(key="k"), "three")).id == runs[0].id
    assert [await run.result() for run in (first, runs[0])] == ["one", "two"]


async def test_a_failed_run_whose_key_was_started_anew_can_not_be_retried(harness: Harness):
    failed = await start(keyed.options(key="k"), "bad")
    with pytest.raises(RunFailed):
        await failed.result()
    new = await start(keyed.options(key="k", key_policy="start_new"), "good")
    with pytest.raises(KeyUsed, match=new.id):
        await failed.retry()


async def test_a_start_in_a_workflow_is_made_once_whatever_the_policy(harness: Harness):
    @workflow
    async def parent(policy: Any) -> list[str]:
        run = await start(keyed.options(key="k", key_policy=policy), "child")
        await run.result()
        try:
            again = await start(keyed.options(key="k", key_policy=policy), "child")
            return [run.id, again.id]
        except KeyUsed:
            return [run.id, "refused"]

    one, other = await (await start(parent, "start_new")).result()
    assert one != other
    assert (await (await start(parent, "return")).result()) == [other, other]
    with pytest.raises(RunFailed, match="KeyUsed"):
        await (await start(parent, "refuse")).result()


async def test_after_a_chain_the_key_belongs_to_its_last_run(harness: Harness):
    run = await start(counting_by_chain.options(key="k"), 1, 3)
    assert (await start(counting_by_chain.options(key="k"), 1, 3)).id == run.id
    await harness.skip("90m")
    second = await start(counting_by_chain.options(key="k"), 1, 3)
    assert second.id == (await chain_of(run))[-1] != run.id
    await run.result()
    assert len((await list_runs(workflow="counting_by_chain")).runs) == 3
