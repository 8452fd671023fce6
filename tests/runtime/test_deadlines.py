"""Deadlines: `@workflow(timeout=…)` ends a run wherever it stands, once, and says so."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Failure,
    Refused,
    RunCancelled,
    RunFailed,
    RunTimeout,
    Settings,
    UsageError,
    continue_as_new,
    run_context,
    sleep,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.testing import Harness

done: list[Any] = []


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    done.clear()
    async with Harness(settings=Settings(cleanup_seconds=10.0)) as opened:
        yield opened


@step
async def act(what: str) -> str:
    done.append(what)
    return what


@workflow(timeout="1h")
async def time_limited(stubborn: bool = False) -> str:
    try:
        await act("first")
        await sleep("90m")
        await act("second")
        return "done"
    finally:
        await act("clean")
        if stubborn:
            await sleep("1h")
            await act("never")


async def test_a_run_over_its_time_fails_and_cleans_up(harness: Harness):
    run = await start(time_limited)
    began = harness.clock.now()
    with pytest.raises(RunFailed) as failed:
        await run.result()
    record = await run.record()
    assert isinstance(failed.value.__cause__, RunTimeout)
    assert "time_limited had not ended within 3600 s" in str(failed.value)
    assert (record.status, record.timeout, record.deadline) == ("failed", 3600.0, began + 3600)
    assert record.as_json()["deadline"] == record.deadline
    assert done == ["first", "clean"]
    assert harness.clock.now() == pytest.approx(began + 3600, abs=5)


async def test_cleaning_up_has_a_bound(harness: Harness):
    run = await start(time_limited, True)
    began = harness.clock.now()
    with pytest.raises(RunFailed, match="`finally` blocks had not after another 10 s"):
        await run.result()
    assert done == ["first", "clean"]
    assert harness.clock.now() == pytest.approx(began + 3610, abs=5)


@workflow(timeout="1h")
async def swallows() -> str:
    try:
        await sleep("2h")
    except asyncio.CancelledError:
        return "kept"
    return "slept"


async def test_a_body_that_goes_on_in_spite_of_it_has_failed_all_the_same(harness: Harness):
    with pytest.raises(RunFailed, match="within 3600 s"):
        await (await start(swallows)).result()


async def test_a_run_that_ends_in_time_is_left_alone(harness: Harness):
    run = await start(time_limited.options(timeout="3h"))
    assert await run.result() == "done"
    await harness.skip("5h")
    assert await run.status() == "completed"


async def test_the_deadline_outlasts_the_worker(harness: Harness):
    run = await start(time_limited)
    await harness.skip("30m")
    began = (await run.record()).created_at
    await harness.crash()
    with pytest.raises(RunFailed):
        await run.result()
    assert (await run.record()).finished_at == pytest.approx(began + 3600, abs=5)
    assert done == ["first", "clean"]


async def test_a_worker_that_dies_in_the_cleaning_up_is_replaced_and_the_run_fails(
    harness: Harness,
):
    run = await start(time_limited, True)
    await harness.skip(3605)
    assert done == ["first", "clean"]
    await harness.crash()
    with pytest.raises(RunFailed, match="had not ended within"):
        await run.result()
    assert done == ["first", "clean"]


async def test_a_deadline_that_passes_while_nobody_is_there_counts_at_once(harness: Harness):
    run = await start(time_limited)
    await harness.skip("30m")
    harness.clock._now += 3 * 3600  # the worker sees none of it
    await harness.crash()
    with pytest.raises(RunFailed, match="within 3600 s"):
        await run.result()
    assert done == ["first", "clean"]


@workflow
async def slow_child() -> str:
    try:
        await sleep("3h")
        await act("child")
        return "child"
    finally:
        await act("child cleans")


@workflow(timeout="1h")
async def parent() -> str:
    return await slow_child()


async def test_children_are_cancelled_with_it_and_go_on_with_a_retry(harness: Harness):
    run = await start(parent.options(timeout="2h"))
    with pytest.raises(RunFailed):
        await run.result()
    await harness.until_blocked()
    child = await _child_of(run.id)
    assert child.status == "cancelled"
    assert done == ["child cleans"]
    before = harness.clock.now()
    await run.retry()
    assert (await run.record()).deadline == before + 7200
    assert await run.result() == "child"
    assert done == ["child cleans", "child", "child cleans"]


async def _child_of(run_id: str) -> Any:
    from holdfast import list_runs

    return (await list_runs(parent=run_id)).runs[0]


async def test_a_retry_goes_on_from_where_it_was_with_its_time_anew(harness: Harness):
    run = await start(time_limited)
    with pytest.raises(RunFailed):
        await run.result()
    failed_at = harness.clock.now()
    await run.retry()
    assert (await run.record()).deadline == failed_at + 3600
    # What it slept for an hour it need not sleep again.
    assert await run.result() == "done"
    assert done == ["first", "clean", "second", "clean"]


async def test_a_retried_run_replays_as_it_was(harness: Harness):
    run = await start(time_limited)
    with pytest.raises(RunFailed):
        await run.result()
    await run.retry()
    await harness.until_blocked()
    await harness.crash()
    assert await run.result() == "done"
    assert done == ["first", "clean", "second", "clean"]


async def test_a_fork_has_its_time_anew(harness: Harness):
    run = await start(time_limited)
    await harness.skip("30m")
    fork = await run.fork()
    now = harness.clock.now()
    assert (await fork.record()).deadline == now + 3600


@workflow(timeout="1h")
async def chained(left: int) -> str:
    seen = run_context().deadline
    await sleep("40m")
    if left:
        continue_as_new(left - 1)
    assert seen is not None
    return seen.isoformat()


async def test_each_run_of_a_chain_has_its_time(harness: Harness):
    run = await start(chained, 3)
    began = (await run.record()).created_at
    assert await run.result()
    assert harness.clock.now() == pytest.approx(began + 4 * 2400, abs=30)


@workflow
async def calls_limited_child() -> str:
    try:
        return await chained.options(timeout=timedelta(minutes=10))(0)
    except RunFailed as error:
        return type(error.__cause__).__name__


@workflow
async def starts_limited() -> str:
    run = await start(chained.options(timeout="10m"), 0)
    try:
        return await run.result()
    except RunFailed as error:
        return type(error.__cause__).__name__


@pytest.mark.parametrize("flow", [calls_limited_child, starts_limited])
async def test_the_option_is_heeded_in_a_workflow(harness: Harness, flow: Any):
    assert await (await start(flow)).result() == "RunTimeout"


@workflow
async def on_timeout(failure: Failure) -> None:
    done.append(failure.error_type)


@workflow(timeout="1h", on_failure=on_timeout, concurrency=1)
async def with_handler() -> None:
    await wait_for_event("never", timeout="300d")


async def test_the_failure_handler_is_started_also_for_a_run_that_never_began(harness: Harness):
    first = await start(with_handler.options(timeout="3h"))
    second = await start(with_handler)
    with pytest.raises(RunFailed, match="before it had begun"):
        await second.result()
    await harness.until_blocked()
    assert done == ["RunTimeout"]
    assert not (await first.record()).ended


async def test_the_time_of_a_delayed_run_begins_with_its_moment(harness: Harness):
    run = await start(chained.options(delay="2h"), 0)
    deadline = (await run.record()).created_at + 7200 + 3600
    assert (await run.record()).deadline == deadline
    assert await run.result()


async def test_cancel_before_the_deadline_is_a_cancel_and_its_cleaning_up_is_bounded(
    harness: Harness,
):
    run = await start(time_limited)
    await harness.skip("1m")
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    stubborn = await start(time_limited, True)
    await harness.skip("30m")
    await stubborn.cancel()
    with pytest.raises(RunCancelled):
        await stubborn.result()
    record = await stubborn.record()
    assert record.status == "cancelled"
    assert record.error is not None and "had not after another 10 s" in record.error
    assert "never" not in done


async def test_a_cancelled_run_is_cancelled_when_a_new_worker_finds_it_over_its_time(
    harness: Harness,
):
    """A retry of a failure would let go on what somebody wanted to stop."""
    stubborn = await start(time_limited, True)
    await harness.skip("30m")
    await stubborn.cancel()
    await harness.skip("1m")
    await harness.crash()
    with pytest.raises(RunCancelled):
        await stubborn.result()
    assert (await stubborn.record()).status == "cancelled"
    with pytest.raises(Refused):
        await stubborn.retry()


async def test_terminating_a_run_that_has_timed_out_ends_it_as_cancelled(harness: Harness):
    run = await start(time_limited, True)
    await harness.skip(3603)
    await run.terminate()
    with pytest.raises(RunCancelled):
        await run.result()


@pytest.mark.parametrize("wrong", [0, "0s", -1])
def test_no_time_at_all_is_refused(wrong: Any):
    with pytest.raises(UsageError):
        time_limited.options(timeout=wrong)
    with pytest.raises(UsageError):
        time_limited.options(timeout="1h")(False)  # a plain call takes no options
