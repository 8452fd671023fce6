"""Steps: recorded in a workflow, plain outside; retries, time limits, heartbeats."""

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Backoff,
    FatalError,
    RetryableError,
    RunFailed,
    Settings,
    StepFailed,
    StepTimeout,
    UsageError,
    send_event,
    start,
    step,
    step_context,
    wait_for_event,
    workflow,
    write_stream,
)
from holdfast.records import STEP_RETRYING
from holdfast.testing import Harness
from waiting import LIMIT


@step
async def add(a: int, b: int = 1) -> int:
    return a + b


@step
def in_a_thread(text: str) -> tuple[str, bool]:
    return text.upper(), threading.current_thread() is threading.main_thread()


async def test_a_step_called_outside_a_workflow_is_the_plain_function():
    assert await add(1, b=2) == 3
    assert in_a_thread("x") == ("X", True)


async def test_steps_give_their_results_and_record_arguments_by_name(harness: Harness):
    @workflow
    async def flow() -> int:
        return await add(await add(1), b=5)

    run = await start(flow)
    assert await run.result() == 7
    steps = await run.steps()
    assert [s.input for s in steps] == [b'{"a":1,"b":1}', b'{"a":2,"b":5}']
    assert [s.output for s in steps] == [b"2", b"7"]


async def test_a_plain_function_runs_in_a_thread(harness: Harness):
    @workflow
    async def flow() -> tuple[str, bool]:
        return await in_a_thread("x")

    assert await (await start(flow)).result() == ("X", False)


async def test_a_failing_step_is_tried_again_with_growing_delays(harness: Harness):
    @step(retries=3, backoff=Backoff(initial="10s", factor=3, jitter=0))
    async def flaky() -> str:
        return "ok"

    @workflow
    async def flow() -> str:
        return await flaky()

    harness.fail(flaky, ValueError("one"), ValueError("two"))
    run = await start(flow)
    assert await run.result() == "ok"
    retries = [e for e in await run.events() if e.type == STEP_RETRYING]
    assert [round(e.facts["next_at"] - e.at) for e in retries] == [10, 30]
    assert [e.facts["error"]["message"] for e in retries] == ["one", "two"]
    assert harness.calls["flaky"] == 3


async def test_jitter_takes_off_up_to_its_share():
    backoff = Backoff(initial=10, factor=2, maximum=25, jitter=0.5)
    assert [backoff.delay(n, luck=0.0) for n in (1, 2, 3, 400)] == [10, 20, 25, 25]
    assert backoff.delay(1, luck=0.999) == pytest.approx(5, abs=0.01)


async def test_the_last_error_reaches_the_workflow_as_what_it_was(harness: Harness):
    @step(retries=1, backoff="1s")
    async def broken(key: str) -> str:
        return {}[key]

    @workflow
    async def flow() -> str:
        try:
            return await broken("missing")
        except KeyError as error:
            return f"caught {error}"

    assert await (await start(flow)).result() == "caught 'missing'"
    assert harness.calls["broken"] == 2


class Odd(Exception):
    def __init__(self, thing: object) -> None:
        super().__init__("odd")
        self.thing = thing


async def test_an_error_that_cannot_be_rebuilt_arrives_as_step_failed(harness: Harness):
    @step(retries=0)
    async def odd() -> None:
        raise Odd(object())

    @workflow
    async def flow() -> list[str]:
        try:
            await odd()
        except StepFailed as error:
            return [error.type, str(error), str("raise Odd" in error.traceback)]
        return []

    assert await (await start(flow)).result() == ["Odd", "Odd: odd", "True"]


async def test_a_fatal_error_is_not_retried(harness: Harness):
    @step
    async def refuse() -> None:
        raise FatalError("no card")

    @workflow
    async def flow() -> None:
        await refuse()

    run = await start(flow)
    with pytest.raises(RunFailed, match="no card"):
        await run.result()
    assert harness.calls["refuse"] == 1
    assert (await run.record()).error == "FatalError: no card"


async def test_a_retryable_error_says_when_to_come_back(harness: Harness):
    @step
    async def busy() -> str:
        return "done"

    @workflow
    async def flow() -> str:
        return await busy()

    harness.fail(busy, RetryableError("429", retry_after="90s"))
    began = harness.clock.now()
    assert await (await start(flow)).result() == "done"
    assert harness.clock.now() - began == pytest.approx(90, abs=1)


async def test_every_attempt_has_the_same_idempotency_key_and_steps_have_different_ones(
    harness: Harness,
):
    seen: list[tuple[int, str]] = []

    @step(backoff="1s")
    async def charge(amount: int) -> None:
        context = step_context()
        seen.append((context.attempt, context.idempotency_key))
        if context.attempt < 3 and amount == 1:
            raise ValueError("again")

    @workflow
    async def flow() -> None:
        await charge(1)
        await charge(2)

    await (await start(flow)).result()
    assert [attempt for attempt, _ in seen] == [1, 2, 3, 1]
    assert len({key for _, key in seen[:3]}) == 1
    assert seen[3][1] != seen[0][1]


async def test_a_step_over_its_time_limit_is_cancelled_and_fails():
    cleaned: list[bool] = []

    @step(retries=0, timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    @workflow
    async def flow() -> str:
        try:
            await slow()
        except StepTimeout as error:
            return str(error)
        return ""

    async with Harness():
        assert "slow took longer than 0.05 s" in await (await start(flow)).result()
    assert cleaned == [True]


async def test_heartbeats_put_off_the_idle_limit_and_silence_ends_the_attempt():
    beaten = False

    @step(retries=0, idle_timeout=0.2)
    async def beating() -> str:
        nonlocal beaten
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.6
        while loop.time() < end:  # at every turn of the loop: a slow machine makes no silence
            step_context().heartbeat()
            await asyncio.sleep(0)
        beaten = True
        await asyncio.Event().wait()
        return ""

    @workflow
    async def flow() -> str:
        try:
            return await beating()
        except StepTimeout as error:
            return error.message

    async with Harness():
        assert await (await start(flow)).result() == "beating was silent for 0.2 s"
    assert beaten


async def test_a_thread_over_its_time_limit_is_told_and_left_behind():
    told = threading.Event()

    @step(retries=0, timeout=0.05)
    def stubborn() -> None:
        context = step_context()
        while not context.cancelled:
            time.sleep(0.005)
        told.set()

    @workflow
    async def flow() -> str:
        try:
            await stubborn()
        except StepTimeout:
            return "timed out"
        return ""

    async with Harness():
        assert await (await start(flow)).result() == "timed out"
    assert told.wait(LIMIT)


async def test_sys_exit_in_a_step_is_a_failure_of_the_step_not_of_the_worker(harness: Harness):
    @step(retries=0)
    async def leave() -> None:
        raise SystemExit(3)

    @workflow
    async def flow() -> str:
        try:
            await leave()
        except Exception as error:
            return str(error)
        return ""

    assert "sys.exit(3)" in await (await start(flow)).result()


def test_a_step_cannot_be_a_method():
    class Shop:
        @step
        async def sell(self, item: str) -> None: ...

    with pytest.raises(UsageError, match="step on a method"):
        _ = Shop().sell


async def test_a_step_within_a_step_is_a_plain_call(harness: Harness):
    @step
    async def outer() -> int:
        return await add(1, 1) + await add(2, 2)

    @workflow
    async def flow() -> int:
        return await outer()

    run = await start(flow)
    assert await run.result() == 6
    assert [s.name for s in await run.steps()] == ["outer"]


@pytest.mark.parametrize("after", ["soon", -1, float("nan"), object()])
async def test_a_retry_after_that_is_no_duration_fails_the_step(harness: Harness, after: object):
    @step
    async def busy() -> None:
        raise RetryableError("busy", retry_after=after)  # type: ignore[arg-type]

    @workflow
    async def flow() -> None:
        await busy()

    run = await start(flow)
    with pytest.raises(RunFailed):
        await run.result()
    error = (await run.steps())[0].error
    assert error is not None and error.cause is not None
    assert (error.cause.type, error.cause.message) == ("RetryableError", "busy")


def passing(error: BaseException) -> bool:
    return "later" in str(error)


@pytest.mark.parametrize(
    ("rules", "attempts"),
    [
        ({"retry_on": OSError}, 1),
        ({"retry_on": (OSError, ValueError)}, 3),
        ({"give_up_on": LookupError}, 3),
        ({"give_up_on": (ValueError,)}, 1),
        ({"retry_on": passing}, 3),
        ({"give_up_on": passing}, 1),
        ({"retry_on": ValueError, "give_up_on": passing}, 1),
        ({"retry_on": lambda error: error.no_such_thing}, 1),
    ],
)
async def test_a_step_is_retried_by_its_rules(harness: Harness, rules: Any, attempts: int):
    @step(retries=2, backoff=0, **rules)
    async def failing() -> None:
        raise ValueError("later")

    @workflow
    async def flow() -> None:
        await failing()

    run = await start(flow)
    with pytest.raises(RunFailed):
        await run.result()
    (found,) = await run.steps()
    assert found.attempts == attempts
    error = found.error
    assert error is not None
    assert "ValueError" in (error.type, error.cause.type if error.cause else "")


@pytest.mark.parametrize("wrong", [5, "ValueError", int, ()])
def test_rules_that_name_no_errors_are_refused(wrong: Any):
    with pytest.raises(UsageError, match="names no errors"):

        @step(retry_on=wrong)
        async def failing() -> None: ...


@step(idle_timeout="30s", retries=0)
def beats() -> tuple[str, int]:
    step_context().heartbeat()

    async def nested() -> str:
        await asyncio.to_thread(step_context().heartbeat)
        step_context().heartbeat()
        await write_stream("from a thread")
        return step_context().idempotency_key

    key = asyncio.run(nested())
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat_here,))
    thread.start()
    thread.join()
    return key, step_context().attempt


def beat_here() -> None:
    step_context().heartbeat()


async def test_a_step_in_a_thread_can_use_its_context(harness: Harness):
    @workflow
    async def flow() -> tuple[str, int]:
        return await beats()

    run = await start(flow)
    key, attempt = await run.result()
    assert key.startswith(run.id) and attempt == 1
    assert [piece async for piece in run.stream()] == ["from a thread"]


async def test_a_step_without_a_limit_has_its_workflows_or_the_settings():
    @step(retries=0)
    async def slow() -> None:
        await asyncio.sleep(3600)

    @workflow(step_timeout="1ms")
    async def limited() -> None:
        await slow()

    @workflow
    async def usual() -> None:
        await slow()

    async with Harness(settings=Settings(step_timeout=0.002)):
        for flow, limit in ((limited, "0.001 s"), (usual, "0.002 s")):
            with pytest.raises(RunFailed, match=f"slow took longer than {limit}"):
                await (await start(flow)).result()


ENDINGS: list[Callable[[], object]] = [
    lambda: sys.exit("config missing"),
    lambda: throw(KeyboardInterrupt()),
    lambda: throw(GeneratorExit()),
    lambda: throw(BaseException("base")),
]


def throw(error: BaseException) -> None:
    raise error


@step(retries=1, backoff=0)
async def ending(number: int) -> None:
    ENDINGS[number]()


@step(retries=1, backoff=0, timeout="1m")
def ending_in_a_thread(number: int) -> None:
    ENDINGS[number]()


@workflow
async def ends_in_a_step(number: int) -> None:
    await ending(number)


@workflow
async def ends_in_a_thread(number: int) -> None:
    await ending_in_a_thread(number)


@workflow
async def ends_in_the_body(number: int) -> None:
    ENDINGS[number]()


@workflow
async def ends_in_a_finally(number: int) -> None:
    try:
        await add(1)
    finally:
        ENDINGS[number]()


@workflow
async def ends_in_a_task(number: int) -> None:
    async def act() -> None:
        await add(1)
        ENDINGS[number]()

    await asyncio.gather(act(), add(2))


@workflow
async def ends_in_a_callback(number: int) -> None:
    asyncio.get_running_loop().call_soon(ENDINGS[number])
    await add(1)


@workflow
async def ends_in_a_predicate(number: int) -> None:
    await wait_for_event("go", where=lambda _payload: ENDINGS[number](), timeout="1h")


@pytest.mark.parametrize(
    "flow",
    [
        ends_in_a_step,
        ends_in_a_thread,
        ends_in_the_body,
        ends_in_a_finally,
        ends_in_a_task,
        ends_in_a_callback,
        ends_in_a_predicate,
    ],
    ids=lambda flow: flow.name,
)
async def test_what_would_end_a_program_ends_its_run_alone(harness: Harness, flow: Any):
    for number in range(len(ENDINGS)):
        run = await start(flow, number)
        await send_event("go", {}, run=run.id)
        with pytest.raises(RunFailed):
            await run.result()
    other = await start(ends_in_a_step, 0)
    with pytest.raises(RunFailed, match=r"ending called sys.exit\(config missing\)"):
        await other.result()
    assert (await other.steps())[0].attempts == 2


async def test_a_label_tells_calls_of_a_step_apart_and_may_change(harness: Harness):
    words = "first\n\ttime"

    @workflow
    async def labelled() -> int:
        one = await add.options(label=words)(1)
        await wait_for_event("go", timeout="1h")
        return one + await add(2)

    run = await start(labelled)
    await harness.skip("1m")
    words = "another \ud800 name"  # replayed with another label
    await harness.crash()
    await send_event("go", None, run=run.id)
    assert await run.result() == 5
    steps = [each for each in await run.steps() if each.kind == "step"]
    assert [each.label for each in steps] == ["first time", ""]
    assert steps[0].as_json()["label"] == "first time"


async def test_a_label_is_one_line_of_whole_characters(harness: Harness):
    @workflow
    async def labelled() -> int:
        return await add.options(label="a\nb \ud800" + 300 * "x")(1)

    run = await start(labelled)
    await run.result()
    (found,) = await run.steps()
    assert found.label.startswith("a b ?xxx")
    assert len(found.label) == 200


async def test_steps_say_which_branch_of_the_body_asked_for_them(harness: Harness):
    async def region(numbers: list[int]) -> None:
        await asyncio.gather(*(add(number) for number in numbers))
        await add(0)

    @workflow
    async def branching() -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(region([1, 2]))
            group.create_task(region([3]), name="south")
        return await add(9)

    run = await start(branching)
    await run.result()
    found = {each.key: each.branch for each in await run.steps()}
    assert found == {
        "0.0.0/1": "0.0 region",
        "0.0.1/1": "0.0 region",
        "0.0/1": "0.0 region",
        "0.1.0/1": "0.1 south",
        "0.1/1": "0.1 south",
        "0/1": "",
    }
