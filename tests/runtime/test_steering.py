"""Steering: what a request does to a run, wherever the run is. (`docs/reference/steering.md`)"""

import asyncio

import pytest

from holdfast import (
    Backoff,
    Concurrency,
    Failure,
    FatalError,
    Refused,
    RunCancelled,
    RunHandle,
    UsageError,
    list_runs,
    sleep,
    start,
    step,
    workflow,
)
from holdfast.errors import StoreFull
from holdfast.records import RUN_PAUSED
from holdfast.runtime.definitions import Workflow
from holdfast.testing import Harness

done: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def forget() -> None:
    done.clear()
    gates.clear()


@step
async def do(what: str) -> str:
    done.append(what)
    return what


@step
async def do_when_let(what: str) -> str:
    """A step that ends when the test says so."""
    done.append(f"{what} begun")
    await gates.setdefault(what, asyncio.Event()).wait()
    done.append(what)
    return what


@workflow
async def order() -> str:
    try:
        await do_when_let("check")
        await do("charge")
        await do("ship")
        return "shipped"
    finally:
        await do("clean up")


@workflow
async def short() -> str:
    await do_when_let("check")
    return "done"


async def begun(what: str) -> None:
    while f"{what} begun" not in done:
        await asyncio.sleep(0)


async def pause(harness: Harness, run: RunHandle[str] | RunHandle[None]) -> None:
    """Ask for a pause, and wait until the worker has been told."""
    await run.pause()
    while not harness.engine.runs[run.id]._pausing:
        await asyncio.sleep(0)


async def let(harness: Harness, what: str) -> None:
    gates[what].set()
    await harness.until_blocked()


async def paused_in_its_first_step(
    harness: Harness, definition: Workflow[[], str]
) -> RunHandle[str]:
    run = await start(definition)
    await begun("check")
    await pause(harness, run)
    await let(harness, "check")
    assert await run.status() == "paused"
    return run


async def steps(run: RunHandle[str]) -> list[tuple[str, str]]:
    return [(step.name, step.status) for step in await run.steps()]


# --- cancelling what is paused ---


async def test_cancelling_a_paused_run_begins_nothing_but_its_cleaning_up(harness: Harness):
    run = await paused_in_its_first_step(harness, order)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["check begun", "check", "clean up"]
    assert await steps(run) == [("do_when_let", "completed"), ("do", "completed")]


async def test_a_run_paused_in_its_last_step_and_cancelled_is_cancelled(harness: Harness):
    run = await paused_in_its_first_step(harness, short)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["check begun", "check"]


async def test_a_cancellation_of_a_paused_run_replays_as_it_was(harness: Harness):
    @workflow
    async def slow_to_clean_up() -> str:
        try:
            await do_when_let("check")
            await do("charge")
        finally:
            await do("clean up")
            await sleep("1h")
            await do("clean up more")
        return "done"

    run = await paused_in_its_first_step(harness, slow_to_clean_up)
    await run.cancel()
    await harness.until_blocked()
    assert done == ["check begun", "check", "clean up"]
    await harness.crash()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["check begun", "check", "clean up", "clean up more"]


async def test_a_cancel_that_comes_while_a_run_is_pausing_counts(harness: Harness):
    @workflow
    async def two_at_once() -> None:
        async def chain(name: str) -> None:
            await do_when_let(name)
            await do(f"after {name}")

        await asyncio.gather(chain("a"), chain("b"))

    run = await start(two_at_once)
    await begun("a")
    await begun("b")
    await pause(harness, run)
    gates["a"].set()
    while "a" not in [e.value and e.value.decode().strip('"') for e in await run.events()]:
        await asyncio.sleep(0)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["a begun", "b begun", "a"]


async def test_cancelling_twice_is_cancelling_once(harness: Harness):
    @workflow
    async def careful() -> None:
        try:
            await sleep("1d")
        finally:
            await do_when_let("clean up")
            await do("clean up more")

    run = await start(careful)
    await harness.until_blocked()
    await run.cancel()
    while "clean up begun" not in done:
        await asyncio.sleep(0)
    await run.cancel()
    with pytest.raises(Refused, match="being cancelled"):
        await run.pause()
    gates["clean up"].set()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["clean up begun", "clean up", "clean up more"]


async def test_a_delayed_run_that_is_paused_and_cancelled_never_begins(harness: Harness):
    run = await start(order.options(delay="1h"))
    await run.pause()
    await run.cancel()
    assert await run.status() == "cancelled"
    await harness.skip("2h")
    assert done == []


async def test_cancelling_a_stuck_run_cancels_the_child_it_waits_for(harness: Harness):
    @workflow
    async def child() -> None:
        await sleep("1d")
        await do("child")

    changed = False

    @workflow
    async def parent() -> None:
        await do("other" if changed else "first")
        await child()

    run = await start(parent)
    await harness.until_blocked()
    changed = True
    await harness.crash()
    await run.pause()
    await run.resume()
    await harness.until_blocked()
    assert await run.status() == "stuck"
    await run.cancel()
    assert await run.status() == "cancelled"
    await harness.skip("2d")
    assert [each.status for each in (await list_runs(workflow="child")).runs] == ["cancelled"]
    assert "child" not in done


# --- pausing ---


async def test_a_pause_is_withdrawn_by_a_resume_before_it_took_effect(harness: Harness):
    run = await start(order)
    await begun("check")
    await pause(harness, run)
    await run.resume()
    gates["check"].set()
    assert await run.result() == "shipped"
    assert RUN_PAUSED not in [event.type for event in await run.events()]


async def test_a_step_is_not_tried_again_while_its_run_is_pausing(harness: Harness):
    @step(retries=1, backoff=60)
    async def flaky() -> None:
        done.append("flaky")
        raise ValueError("no")

    @workflow
    async def both() -> None:
        await asyncio.gather(do_when_let("slow"), flaky())

    run = await start(both)
    await begun("slow")
    while "flaky" not in done:
        await asyncio.sleep(0)
    await pause(harness, run)
    harness.clock.advance(harness.clock.now() + 120)
    await let(harness, "slow")
    assert await run.status() == "paused"
    assert done.count("flaky") == 1
    await run.resume()
    await harness.skip("5m")
    assert done.count("flaky") == 2
    assert await run.status() == "failed"


async def test_a_delay_outlasts_pause_and_resume(harness: Harness):
    run = await start(order.options(delay="1h"))
    await run.pause()
    await harness.skip("10m")
    await run.resume()
    await harness.skip("40m")
    assert (await run.status(), done) == ("pending", [])
    gates["check"] = asyncio.Event()
    gates["check"].set()
    await harness.skip("11m")
    assert await run.status() == "completed"


# --- limits ---


@workflow(concurrency=1)
async def one_at_a_time(name: str) -> None:
    await do(f"{name} begun")
    await sleep("1h")
    await do(name)


async def statuses(*runs: RunHandle[None]) -> list[str]:
    """Where the runs are; whether one that is under way is in memory is of no concern here."""
    found = [await run.status() for run in runs]
    return ["under way" if each in ("running", "waiting") else each for each in found]


async def test_pause_and_resume_let_no_run_in_over_the_limit(harness: Harness):
    first, second = await start(one_at_a_time, "a"), await start(one_at_a_time, "b")
    await harness.until_blocked()
    await second.pause()
    await second.resume()
    await harness.until_blocked()
    assert await statuses(first, second) == ["under way", "queued"]
    await harness.skip("61m")
    assert done == ["a begun", "a", "b begun"]


async def test_a_queued_run_that_is_paused_keeps_nobody_out(harness: Harness):
    runs = [await start(one_at_a_time, name) for name in "abc"]
    await harness.until_blocked()
    await runs[1].pause()
    await harness.skip("61m")
    assert await statuses(*runs) == ["completed", "paused", "under way"]
    await runs[1].resume()
    assert await statuses(*runs) == ["completed", "queued", "under way"]
    await harness.skip("61m")
    assert await statuses(*runs) == ["completed", "under way", "completed"]


async def test_a_run_paused_on_its_way_keeps_its_place(harness: Harness):
    runs = [await start(one_at_a_time, name) for name in "ab"]
    await harness.until_blocked()
    await runs[0].pause()
    await harness.skip("2h")
    assert await statuses(*runs) == ["paused", "queued"]


async def test_a_delay_is_not_lost_in_the_queue_and_takes_no_place(harness: Harness):
    late = await start(one_at_a_time.options(delay="90m"), "late")
    first, second = await start(one_at_a_time, "a"), await start(one_at_a_time, "b")
    await harness.until_blocked()
    assert await statuses(late, first, second) == ["pending", "under way", "queued"]
    await harness.skip("61m")
    assert await statuses(late, first, second) == ["pending", "completed", "under way"]
    await harness.skip("30m")  # now it is due, and there is no place for it
    assert await statuses(late, first, second) == ["queued", "completed", "under way"]
    await harness.skip("30m")
    assert await statuses(late, first, second) == ["under way", "completed", "completed"]


async def test_a_queued_run_whose_turn_comes_before_its_moment_waits_for_it(harness: Harness):
    first = await start(one_at_a_time, "a")
    late = await start(one_at_a_time.options(delay="90m"), "late")
    await late.pause()
    await late.resume()
    await harness.skip("61m")
    assert await statuses(first, late) == ["completed", "pending"]
    await harness.skip("30m")
    assert await statuses(late) == ["under way"]


async def test_forks_and_retries_queue_like_new_runs(harness: Harness):
    @step(retries=0)
    async def fails() -> None:
        raise FatalError("no")

    @workflow(concurrency=Concurrency(key="name", per_key=1))
    async def limited(name: str, fail: bool) -> None:
        await do(f"{name} begun")
        if fail:
            await fails()
        await sleep("1h")

    failed = await start(limited, "a", fail=True)
    await harness.until_blocked()
    running = await start(limited, "a", fail=False)
    await harness.until_blocked()
    await failed.retry()
    fork = await running.fork()
    elsewhere = await running.fork(input={"name": "b"})
    await harness.until_blocked()
    assert await statuses(running, failed, fork) == ["under way", "queued", "queued"]
    assert await statuses(elsewhere) == ["under way"]
    await harness.skip("61m")
    assert await statuses(running, failed, fork) == ["completed", "failed", "under way"]


async def test_queued_runs_are_admitted_in_the_order_they_were_started_in(harness: Harness):
    @workflow(concurrency=1)
    async def quick(number: int) -> None:
        await do(str(number))

    # In virtual time all are started in the same millisecond: their ids do not say the order.
    runs = [await start(quick, number) for number in range(30)]
    for run in runs:
        await run.result()
    assert done == [str(number) for number in range(30)]


# --- giving back ---


@pytest.mark.parametrize("refused", [False, True])
async def test_a_retry_that_falls_due_while_its_run_is_given_back_is_not_forgotten(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, refused: bool
):
    @step(retries=1, backoff=Backoff(initial=10, jitter=0))
    async def flaky() -> str:
        done.append("flaky")
        if len(done) == 1:
            raise ValueError("once")
        return "done"

    @workflow
    async def patient() -> str:
        return await flaky()

    release = harness.engine.store.release
    given_back: list[float | None] = []

    async def late_release(run_id: str, fence: int, due_at: float | None) -> bool:
        """The timer rings between the finding that the run is idle and its being given back."""
        given_back.append(due_at)
        harness.clock.advance(harness.clock.now() + 20)
        await asyncio.sleep(0)
        assert done == ["flaky"], "a step has begun in a run that is being given back"
        if refused:
            raise StoreFull("no space")
        return await release(run_id, fence, due_at)

    monkeypatch.setattr(harness.engine.store, "release", late_release)
    run = await start(patient)
    await harness.skip(6)  # for so long it is idle, and then given back
    assert await run.result() == "done"
    assert len(given_back) == 1
    assert given_back[0] is not None


# --- terminating ---


async def test_a_body_that_swallows_its_cancellation_can_be_terminated(harness: Harness):
    @workflow
    async def child() -> None:
        await sleep("1d")

    @workflow
    async def stubborn() -> None:
        while True:
            try:
                await child()
            except (asyncio.CancelledError, RunCancelled):
                await do("not yet")
            finally:
                await do("clean up")

    run = await start(stubborn)
    await harness.until_blocked()
    await run.cancel()
    await harness.until_blocked()
    assert await run.status() in ("running", "waiting")
    before = list(done)
    await run.terminate()
    with pytest.raises(RunCancelled, match="terminated"):
        await run.result()
    await harness.skip("2d")
    assert done == before
    assert {each.status for each in (await list_runs(workflow="child")).runs} == {"cancelled"}
    assert "Terminated" in str((await run.record()).error)


async def test_terminating_interrupts_the_step_under_way(harness: Harness):
    run = await start(order)
    await begun("check")
    await run.terminate()
    with pytest.raises(RunCancelled):
        await run.result()
    assert done == ["check begun"]


# --- options ---


async def test_a_child_takes_its_delay_and_attributes(harness: Harness):
    @workflow
    async def child() -> None:
        await do("child")

    @workflow
    async def parent() -> None:
        await child.options(delay="1h", attributes={"team": "a"})()

    run = await start(parent)
    await harness.skip("59m")
    (found,) = (await list_runs(attributes={"team": "a"})).runs
    assert (found.status, found.parent_id, done) == ("pending", run.id, [])
    await harness.skip("2m")
    assert done == ["child"]
    await run.result()


async def test_options_that_a_call_can_not_heed_are_refused(harness: Harness):
    @workflow
    async def child() -> None:
        await do("child")

    @workflow
    async def parent() -> str:
        try:
            await child.options(key="k")()
        except UsageError as error:
            return error.message
        return "taken"

    assert "can't have a key" in await (await start(parent)).result()
    with pytest.raises(UsageError, match="can't have a key"):

        @workflow(on_failure=child.options(key="k"))  # type: ignore[arg-type]
        async def fragile() -> None:
            return

    for given in ({"key": "k"}, {"attributes": {"a": 1}}, {"delay": 1}):
        with pytest.raises(UsageError, match=next(iter(given))):
            child.options(**given)()  # type: ignore[arg-type]
    await child()
    assert done == ["child"]


async def test_a_failure_handler_keeps_to_its_options_and_limits(harness: Harness):
    @workflow(concurrency=1)
    async def tell(failure: Failure) -> None:
        await do("told")
        await sleep("1h")

    @step(retries=0)
    async def fails() -> None:
        raise FatalError("no")

    @workflow(on_failure=tell.options(attributes={"urgent": True}, delay="10m"))
    async def fragile() -> None:
        await fails()

    for _ in range(2):
        await start(fragile)
    await harness.skip("9m")
    assert done == []
    await harness.skip("2m")
    told = (await list_runs(attributes={"urgent": True})).runs
    assert sorted(run.status for run in told)[0] == "queued"
    assert done == ["told"]
