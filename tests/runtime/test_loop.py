"""asyncio in workflow bodies: it works, replays identically, and refuses real I/O."""

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import NotInWorkflow, RunFailed, now, random, sleep, start, step, uuid4, workflow
from holdfast.testing import Harness


@step
async def echo(value: str) -> str:
    return value


@step
async def slow_echo(value: str, turns: int) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    return value


async def chain(name: str, length: int) -> str:
    """A branch: each step's result must come back to its own branch."""
    text = ""
    for place in range(length):
        text += await slow_echo(f"{name}{place} ", turns=(length * 7 + place * 3) % 5)
    return text


async def test_gather_over_branches_of_unequal_length_keeps_results_apart(harness: Harness):
    @workflow
    async def flow() -> list[str]:
        return await asyncio.gather(*(chain(name, n) for name, n in zip("abcd", (4, 1, 3, 2))))

    expected = ["a0 a1 a2 a3 ", "b0 ", "c0 c1 c2 ", "d0 d1 "]
    assert await (await start(flow)).result() == expected


async def test_a_task_group_joins_its_tasks_and_cancels_them_on_error(harness: Harness):
    cancelled: list[str] = []

    @step
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("endless")

    @workflow
    async def flow() -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(chain("x", 2))
            two = group.create_task(echo("y"))
        seen = f"{one.result()}{two.result()}"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(endless())
                group.create_task(failing())
        except* ValueError as errors:
            seen += f" {errors.exceptions[0]}"
        return seen

    async def failing() -> None:
        await echo("z")
        raise ValueError("boom")

    assert await (await start(flow)).result() == "x0 x1 y boom"
    await harness.until_blocked()
    assert cancelled == ["endless"]


async def test_as_completed_and_wait_give_the_same_order_on_every_replay(harness: Harness):
    @workflow
    async def flow() -> list[str]:
        order = [
            await each
            for each in asyncio.as_completed([chain(c, 1 + i % 3) for i, c in enumerate("abcdef")])
        ]
        tasks = [asyncio.create_task(chain(name, 2), name=name) for name in "uvw"]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order += [task.get_name() for task in done]
        while pending:
            done, pending = await asyncio.wait(pending)
            order += [task.get_name() for task in done]
        for item in order:
            await echo(item)
        return order

    run = await start(flow)
    order = await run.result()
    assert sorted(order[6:]) == ["u", "v", "w"]
    assert len(order) == 9


async def test_timeouts_queues_events_locks_and_semaphores_work(harness: Harness):
    @workflow
    async def flow() -> list[object]:
        seen: list[object] = []
        try:
            async with asyncio.timeout(60):
                await asyncio.sleep(3600)
        except TimeoutError:
            seen.append("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(3600), 60)
        except TimeoutError:
            seen.append("wait_for")
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        ready, lock = asyncio.Event(), asyncio.Lock()

        async def produce() -> None:
            for number in range(3):
                async with lock:
                    await queue.put(number)
                await echo("put")
            ready.set()

        producer = asyncio.create_task(produce())
        for _ in range(3):
            seen.append(await queue.get())
        await ready.wait()
        await producer
        async with asyncio.Semaphore(1):
            seen.append(await asyncio.shield(echo("end")))
        return seen

    began = harness.clock.now()
    assert await (await start(flow)).result() == ["timeout", "wait_for", 0, 1, 2, "end"]
    assert 120 <= harness.clock.now() - began < 130


async def test_sleep_and_asyncio_sleep_are_durable_timers(harness: Harness):
    @workflow
    async def flow() -> float:
        before = now()
        await sleep("3d")
        await asyncio.sleep(60)
        return (now() - before).total_seconds()

    run = await start(flow)
    await harness.skip("2d")
    await harness.crash()
    assert await run.result() == pytest.approx(3 * 86400 + 60, abs=2)


async def test_time_chance_and_ids_are_the_same_after_a_crash(harness: Harness):
    @workflow
    async def flow() -> list[str]:
        first = [str(now()), str(random()), str(uuid4())]
        await echo("x")
        assert [str(random()), str(uuid4())] != first[1:]
        await sleep("1h")
        return first

    run = await start(flow)
    await harness.until_blocked()
    await harness.crash()
    first = await run.result()
    assert len(set(first)) == 3
    again = await (await start(flow)).result()
    assert again[1:] != first[1:], "another run has other chances"


REFUSED = {
    "open": lambda: Path(__file__).open(),
    "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
    "thread": lambda: threading.Thread(target=print).start(),
    "process": lambda: subprocess.run(["true"], check=True),
    "sleep": lambda: time.sleep(1),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_blocking_io_in_a_body_is_refused_with_a_hint(what: str):
    @workflow
    async def flow() -> str:
        try:
            REFUSED[what]()
        except NotInWorkflow as refusal:
            return str(refusal)
        return "allowed"

    async with Harness():
        assert "hint: put it into a @step" in await (await start(flow)).result()


async def use_executor() -> None:
    await asyncio.to_thread(print)


async def use_network() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def use_subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


@pytest.mark.parametrize("attempt", [use_executor, use_network, use_subprocess])
async def test_the_loops_own_io_is_refused_with_a_hint(attempt: object):
    @workflow
    async def flow() -> str:
        try:
            await attempt()  # type: ignore[operator]
        except NotInWorkflow as refusal:
            return str(refusal)
        return "allowed"

    async with Harness():
        assert "@step" in await (await start(flow)).result()


async def test_outside_of_bodies_nothing_is_refused(harness: Harness, tmp_path: Path):
    @step
    async def write() -> str:
        await asyncio.to_thread((tmp_path / "x").write_text, "hello")
        return (tmp_path / "x").read_text()

    @workflow
    async def flow() -> str:
        import calendar  # an import in a body reads files, and may

        return await write() + str(calendar.MONDAY)

    assert await (await start(flow)).result() == "hello0"


async def test_an_error_in_a_background_task_fails_the_run(harness: Harness):
    kept: list[asyncio.Task[None]] = []

    async def explode() -> None:
        await echo("x")
        raise RuntimeError("lost in the background")

    @workflow
    async def flow() -> str:
        kept.append(asyncio.create_task(explode()))
        await echo("a")
        await sleep(1)
        return "fine"

    with pytest.raises(RunFailed, match="lost in the background"):
        await (await start(flow)).result()


async def test_a_body_that_nothing_can_wake_fails_with_the_reason(harness: Harness):
    @workflow
    async def flow() -> None:
        await echo("x")
        await asyncio.Event().wait()

    with pytest.raises(RunFailed, match="nothing can bring"):
        await (await start(flow)).result()


async def test_a_busy_loop_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.runtime.loop.SPIN_LIMIT", 1000)

    @workflow
    async def flow() -> None:
        while True:
            await asyncio.sleep(0)

    async with Harness() as harness:
        run = await start(flow)
        await harness.until_blocked()
        record = await run.record()
        assert record.status == "stuck"
        assert "busy loop" in (await run.events())[-1].facts["error"]["hint"]


async def test_tasks_left_behind_are_cancelled_and_may_clean_up(harness: Harness):
    done: list[str] = []

    @step
    async def clean() -> None:
        done.append("cleaned")

    async def background() -> None:
        try:
            await sleep("10d")
        finally:
            await clean()

    @workflow
    async def flow() -> str:
        task = asyncio.create_task(background())
        await echo("x")
        assert not task.done()
        return "end"

    assert await (await start(flow)).result() == "end"
    assert done == ["cleaned"]


async def test_async_generators_are_closed_at_the_end(harness: Harness):
    done: list[str] = []

    @step
    async def clean() -> None:
        done.append("cleaned")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await clean()

    @workflow
    async def flow() -> int:
        async for number in numbers():
            return number
        return 0

    assert await (await start(flow)).result() == 1
    assert done == ["cleaned"]
