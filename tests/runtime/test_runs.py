"""Runs as a whole: children, cancellation, keys, limits, attributes, streams, steering."""

import asyncio
from dataclasses import dataclass

import pytest

from holdfast import (
    Concurrency,
    Failure,
    FatalError,
    NotFound,
    Refused,
    RunCancelled,
    RunFailed,
    UsageError,
    get_run,
    list_runs,
    send_event,
    set_attributes,
    sleep,
    start,
    step,
    step_context,
    wait_for_event,
    workflow,
    write_stream,
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
async def double(number: int) -> int:
    await sleep("1h")
    await do(f"double {number}")
    return number * 2


# --- children ---


async def test_a_workflow_called_in_a_workflow_is_a_child_run(harness: Harness):
    @workflow
    async def parent() -> list[int]:
        return list(await asyncio.gather(double(1), double(2)))

    run = await start(parent)
    assert await run.result() == [2, 4]
    page = await list_runs(parent=run.id)
    assert [r.workflow for r in page.runs] == ["double", "double"]
    assert sorted(done) == ["double 1", "double 2"]


async def test_a_failing_child_raises_in_its_parent(harness: Harness):
    @workflow
    async def bad() -> None:
        raise FatalError("broken child")

    @workflow
    async def parent() -> str:
        try:
            await bad()
        except RunFailed as error:
            return f"{error.__cause__}"
        return ""

    assert await (await start(parent)).result() == "broken child"


async def test_a_detached_child_outlives_its_parent_and_can_be_awaited(harness: Harness):
    @workflow
    async def parent(wait: bool) -> str | int:
        run = await start(double, 5)
        return await run.result() if wait else run.id

    child = await (await start(parent, False)).result()
    assert isinstance(child, str)
    assert await (await get_run(child)).result() == 10
    assert await (await start(parent, True)).result() == 10


async def test_children_survive_a_crash_of_the_worker(harness: Harness):
    @workflow
    async def parent() -> int:
        return await double(await double(1))

    run = await start(parent)
    await harness.skip("30m")
    await harness.crash()
    await harness.skip("45m")
    await harness.crash()
    assert await run.result() == 4
    assert done == ["double 1", "double 2"]


# --- cancellation ---


async def test_cancelling_reaches_the_running_step_and_finally_blocks_may_call_steps(
    harness: Harness,
):
    begun = asyncio.Event()

    @step
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            done.append("step cancelled")

    @workflow
    async def flow() -> None:
        try:
            await endless()
        finally:
            await do("cleaned up")

    run = await start(flow)
    await begun.wait()
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    await harness.until_blocked()
    assert sorted(done) == ["cleaned up", "step cancelled"]
    assert [s.status for s in await run.steps()] == ["cancelled", "completed"]
    await run.cancel()  # once more is no error
    with pytest.raises(Refused):
        await run.pause()


async def test_cancelling_a_sleeping_run_wakes_it(harness: Harness):
    @workflow
    async def flow() -> None:
        try:
            await sleep("30d")
        finally:
            await do("cleaned up")

    run = await start(flow)
    await harness.skip("1d")
    began = harness.clock.now()
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert harness.clock.now() - began < 60
    assert done == ["cleaned up"]


async def test_a_body_may_refuse_to_be_cancelled(harness: Harness):
    @workflow
    async def flow() -> str:
        try:
            await sleep("1d")
        except asyncio.CancelledError:
            return await do("finished anyway")
        return ""

    run = await start(flow)
    await harness.until_blocked()
    await run.cancel()
    assert await run.result() == "finished anyway"


async def test_cancelling_a_parent_cancels_the_child_it_waits_for(harness: Harness):
    @workflow
    async def parent() -> int:
        return await double(1)

    run = await start(parent)
    await harness.until_blocked()
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    await harness.until_blocked()
    child = (await list_runs(parent=run.id)).runs[0]
    assert child.status == "cancelled"
    assert done == []


async def test_a_run_that_never_began_is_cancelled_at_once(harness: Harness):
    run = await start(double.options(delay="1d"), 1)
    await run.cancel()
    assert await run.status() == "cancelled"


# --- starting ---


async def test_the_same_key_gives_the_same_run_also_after_its_end(harness: Harness):
    started = await asyncio.gather(*(start(double.options(key="k"), n) for n in range(20)))
    assert len({run.id for run in started}) == 1
    first = await started[0].result()
    again = await start(double.options(key="k"), 99)
    assert (again.id, await again.result()) == (started[0].id, first)
    assert (await start(double.options(key="other"), 1)).id != started[0].id
    assert len(done) == 1


async def test_a_keyed_start_in_a_workflow_finds_the_run_that_exists(harness: Harness):
    @workflow
    async def parent() -> str:
        return (await start(double.options(key="k"), 1)).id

    existing = await start(double.options(key="k"), 1)
    assert await (await start(parent)).result() == existing.id


async def test_a_delayed_start_waits_its_time(harness: Harness):
    began = harness.clock.now()
    run = await start(double.options(delay="2d"), 1)
    await harness.skip("1d")
    assert await run.status() == "pending"
    assert await run.result() == 2
    assert harness.clock.now() - began >= 2 * 86400 + 3600


async def test_wrong_arguments_are_refused_before_anything_starts(harness: Harness):
    for args in [(), (1, 2), ("one",)]:
        with pytest.raises(UsageError):
            await start(double, *args)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is no workflow"):
        await start(do, "x")  # type: ignore[arg-type]
    assert not (await list_runs()).runs
    with pytest.raises(NotFound):
        await get_run("run_nowhere")


# --- limits ---


async def test_a_limit_on_a_workflow_queues_what_is_over_it(harness: Harness):
    running = most = 0

    @step
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10):
            await asyncio.sleep(0)
        running -= 1

    @workflow(concurrency=2)
    async def limited(number: int) -> int:
        await work()
        await sleep("1m")
        return number

    runs = [await start(limited, n) for n in range(6)]
    assert [await run.status() for run in runs].count("queued") == 4
    await runs[5].cancel()
    assert [await run.result() for run in runs[:5]] == [0, 1, 2, 3, 4]
    assert most == 2


async def test_a_limit_per_key_lets_other_keys_run(harness: Harness):
    @workflow(concurrency=Concurrency(limit=3, key="customer", per_key=1))
    async def limited(customer: str, number: int) -> int:
        await sleep("1m")
        return number

    first = [await start(limited, "a", n) for n in range(3)]
    other = await start(limited, "b", 9)
    assert [await r.status() for r in first] == ["running", "queued", "queued"]
    assert await other.status() == "running"
    assert [await r.result() for r in (*first, other)] == [0, 1, 2, 9]


# --- what can be seen ---


async def test_attributes_are_set_at_start_and_by_the_body_and_searched(harness: Harness):
    @workflow
    async def tagged(region: str) -> None:
        set_attributes(region=region, stage="begun")
        await do("x")
        set_attributes(stage=None, done=True)

    for region in ("eu", "us", "eu"):
        await (await start(tagged.options(attributes={"team": 7}), region)).result()
    page = await list_runs(attributes={"region": "eu", "done": True})
    assert len(page.runs) == 2
    assert page.runs[0].attributes == {"team": 7, "region": "eu", "done": True}
    assert not (await list_runs(attributes={"stage": "begun"})).runs
    assert not (await list_runs(attributes={"done": "true"})).runs


async def test_runs_are_listed_newest_first_by_pages_and_filters(harness: Harness):
    ids = []
    for number in range(5):
        ids.append((await start(double, number)).id)
        await harness.skip(1)
    await (await get_run(ids[0])).cancel()
    await harness.until_blocked()
    page = await list_runs(limit=2)
    assert [r.id for r in page.runs] == ids[:2:-1]
    rest = await list_runs(limit=10, cursor=page.cursor)
    assert [r.id for r in rest.runs] == ids[2::-1]
    assert rest.cursor is None
    assert [r.id for r in (await list_runs(status="cancelled")).runs] == ids[:1]
    assert not (await list_runs(workflow="nothing")).runs


async def test_a_stream_is_read_live_from_any_index_and_not_doubled_by_replay(harness: Harness):
    @step
    async def speak() -> None:
        for word in ("from", "a", "step"):
            await write_stream(word)

    @workflow
    async def talk() -> None:
        await write_stream({"n": 1})
        await speak()
        await write_stream("side", stream="other")
        await sleep("1h")
        await write_stream("end")

    run = await start(talk)
    await harness.until_blocked()
    await harness.crash()
    reader = run.stream()
    seen = [await anext(reader) for _ in range(4)]
    assert seen == [{"n": 1}, "from", "a", "step"]
    await run.result()
    assert [chunk async for chunk in reader] == ["end"]
    assert [chunk async for chunk in run.stream(start=3)] == ["step", "end"]
    assert [chunk async for chunk in run.stream("other")] == ["side"]


# --- pause, retry, fork ---


async def test_a_paused_run_finishes_its_step_and_begins_nothing_new(harness: Harness):
    gate = asyncio.Event()

    @step
    async def gated() -> None:
        await gate.wait()
        done.append("gated")

    @workflow
    async def flow() -> str:
        await gated()
        return await do("after")

    run = await start(flow)
    for _ in range(20):
        await asyncio.sleep(0)
    await run.pause()
    gate.set()
    await harness.until_blocked()
    assert (await run.status(), done) == ("paused", ["gated"])
    await harness.skip("1d")
    await harness.crash()
    assert done == ["gated"]
    await run.resume()
    assert await run.result() == "after"
    assert done == ["gated", "after"]
    with pytest.raises(Refused):
        await run.resume()


async def test_timers_that_pass_during_a_pause_fire_on_resume(harness: Harness):
    run = await start(double, 4)
    await harness.until_blocked()
    await run.pause()
    await harness.skip("5h")
    assert await run.status() == "paused"
    assert done == []
    await run.resume()
    assert await run.result() == 8


async def test_a_retried_run_goes_on_from_where_it_failed(harness: Harness):
    @step(retries=0)
    async def fragile() -> str:
        done.append("fragile")
        return "whole"

    @workflow
    async def flow() -> str:
        first = await do("first")
        try:
            result = await fragile()
        finally:
            await do("cleanup")
        return first + result + await do("last")

    harness.fail(fragile, ValueError("one"), ValueError("two"))
    run = await start(flow)
    for message in ("one", "two"):
        with pytest.raises(RunFailed, match=message):
            await run.result()
        await run.retry()
    assert await run.result() == "firstwholelast"
    assert done.count("first") == 1, "what succeeded is not done again"
    assert done[-3:] == ["fragile", "cleanup", "last"]
    with pytest.raises(Refused, match="only a failed run"):
        await run.retry()


async def test_attempts_count_on_after_a_retry_and_are_granted_anew(harness: Harness):
    attempts: list[int] = []

    @step(retries=1, backoff="1s")
    async def fragile() -> str:
        attempts.append(step_context().attempt)
        if len(attempts) < 6:
            raise ValueError(str(len(attempts)))
        return "whole"

    @workflow
    async def flow() -> str:
        return await fragile()

    run = await start(flow)
    for message in ("2", "4"):
        with pytest.raises(RunFailed, match=message):
            await run.result()
        assert (await run.steps())[0].status == "failed"
        await run.retry()
    assert await run.result() == "whole"
    assert attempts == [1, 2, 3, 4, 5, 6]
    assert [(s.status, s.attempts) for s in await run.steps()] == [("completed", 6)]


async def test_a_retry_keeps_what_parallel_branches_did_after_the_failure(harness: Harness):
    @step(retries=0)
    async def fragile() -> str:
        return "ok"

    async def branch() -> str:
        out = ""
        for place in range(3):
            out += await do(f"branch{place} ")
        return out

    @workflow
    async def flow() -> list[str]:
        results = await asyncio.gather(branch(), fragile(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [str(r) for r in results]

    harness.fail(fragile, ValueError("x"))
    run = await start(flow)
    with pytest.raises(RunFailed):
        await run.result()
    await run.retry()
    assert await run.result() == ["branch0 branch1 branch2 ", "ok"]
    assert done == ["branch0 ", "branch1 ", "branch2 "], "each was paid for once"


async def test_a_retry_reaches_the_child_that_failed(harness: Harness):
    @step(retries=0)
    async def fragile() -> int:
        return 5

    @workflow
    async def child() -> int:
        await do("in child")
        return await fragile()

    @workflow
    async def parent() -> int:
        return await child() + 1

    harness.fail(fragile, ValueError("x"))
    run = await start(parent)
    with pytest.raises(RunFailed):
        await run.result()
    await run.retry()
    assert await run.result() == 6
    assert done == ["in child"]
    assert [(s.kind, s.status, s.attempts) for s in await run.steps()] == [
        ("child", "completed", 2)
    ]


async def test_a_fork_takes_over_what_came_before_and_runs_the_rest_again(harness: Harness):
    @workflow
    async def flow(name: str) -> str:
        one = await do(f"one {name}")
        two = await do(f"two after {one}")
        return await do(f"three after {two}")

    run = await start(flow, "x")
    result = await run.result()
    second = (await run.steps())[1].key
    done.clear()

    plain = await run.fork(second)
    assert await plain.result() == result
    assert done == ["two after one x", "three after two after one x"]
    assert (await plain.record()).forked_from == run.id

    edited = await run.fork(second, input={"what": "TWO"})
    assert await edited.result() == "three after TWO"

    done.clear()
    replaced = await run.fork(second, result="2")
    assert await replaced.result() == "three after 2"
    assert done == ["three after 2"]

    whole = await run.fork(input={"name": "y"})
    assert await whole.result() == "three after two after one y"

    with pytest.raises(NotFound):
        await run.fork("9/9")
    with pytest.raises(UsageError, match="no argument 'nope'"):
        await run.fork(second, input={"nope": 1})
    assert await run.result() == result, "the original is as it was"


async def test_a_fork_in_the_middle_of_parallel_branches_does_not_mix_them(harness: Harness):
    async def branch(name: str, length: int) -> str:
        out = ""
        for place in range(length):
            out += await do(f"{name}{place} ")
        return out

    @workflow
    async def flow() -> list[str]:
        return list(await asyncio.gather(branch("a", 3), branch("b", 1), branch("c", 2)))

    run = await start(flow)
    expected = await run.result()
    for each in await run.steps():
        assert await (await run.fork(each.key)).result() == expected


async def test_a_run_that_was_paused_and_retried_can_be_forked(harness: Harness):
    @step(retries=0)
    async def fragile() -> str | None:
        return "whole"

    @workflow
    async def flow() -> str:
        first = await do("first")
        await sleep("1h")
        return f"{first} {await fragile()} {await do('last')}"

    harness.fail(fragile, ValueError("x"))
    run = await start(flow)
    await harness.until_blocked()
    await run.pause()
    await harness.until_blocked()
    await run.resume()
    with pytest.raises(RunFailed):
        await run.result()
    await run.retry()
    expected = await run.result()
    keys = {s.name: s.key for s in await run.steps()}
    assert await (await run.fork(keys["do"])).result() == expected
    assert await (await run.fork(keys["fragile"], result=None)).result() == "first None last"


async def test_a_failure_handler_is_started_with_the_failure_and_once(harness: Harness):
    seen: list[Failure] = []

    @step
    async def notify(failure: Failure) -> None:
        seen.append(failure)

    @workflow
    async def on_trouble(failure: Failure) -> None:
        await notify(failure)

    @workflow(on_failure=on_trouble)
    async def flow() -> None:
        await do("x")
        raise ValueError("trouble")

    run = await start(flow)
    with pytest.raises(RunFailed):
        await run.result()
    await harness.until_blocked()
    assert seen == [Failure(run.id, "flow", "ValueError", "trouble")]


# --- memory ---


async def test_a_run_that_only_waits_leaves_memory_and_comes_back(harness: Harness):
    @dataclass
    class Order:
        number: int

    @workflow
    async def flow() -> int:
        total = 0
        for _ in range(3):
            await sleep("1d")
            total += len(await do("tick"))
        reply = await wait_for_event("end", timeout="1d")
        return total if reply else -1

    run = await start(flow)
    for days in range(3):
        await harness.skip("12h")
        assert not harness.engine.runs, "not in memory"
        assert (await run.status(), len(done)) == ("waiting", days)
        await harness.skip("12h")
    await harness.skip("1h")
    await send_event("end")
    assert await run.result() == 12
    assert done == ["tick"] * 3
