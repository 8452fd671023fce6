"""Workflows as anybody writes them: nothing in here knows of an engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from holdfast import (
    Failure,
    FatalError,
    RetryableError,
    RunFailed,
    StepTimeout,
    create_webhook,
    now,
    patched,
    publish,
    random,
    run_context,
    send_event,
    set_attributes,
    sleep,
    start,
    step,
    step_context,
    uuid4,
    wait_for_event,
    wait_for_update,
    workflow,
    write_stream,
)

DONE: Counter[str] = Counter()
"""How often what was done, by a name that the caller chose."""


@step
async def add(a: int, b: int) -> int:
    return a + b


@step
def shout(text: str) -> str:
    return text.upper()


@step(retries=3, backoff=0.02)
async def works_at_last(name: str, failures: int) -> int:
    DONE[name] += 1
    if step_context().attempt <= failures:
        raise ValueError(f"attempt {step_context().attempt}")
    return step_context().attempt


@step(retries=5)
async def hopeless(name: str) -> int:
    DONE[name] += 1
    raise FatalError("never again")


@step(retries=2, backoff="50s")
async def later(name: str) -> str:
    DONE[name] += 1
    if DONE[name] == 1:
        raise RetryableError("busy", retry_after=0.01)
    return "done"


@step(timeout=0.1, retries=0)
async def slow() -> None:
    await asyncio.sleep(3600)


@step
async def long(name: str) -> None:
    DONE[f"{name} began"] += 1
    try:
        await asyncio.sleep(3600)
    finally:
        DONE[f"{name} stopped"] += 1


@step
async def clean_up(name: str) -> str:
    DONE[name] += 1
    return "clean"


@step
async def tell(percent: int) -> int:
    publish("progress", percent)
    await write_stream({"percent": percent})
    return percent


@workflow
async def counts(n: int) -> list[int]:
    return [await add(0, i) for i in range(n)]


@workflow
async def fans_out(n: int) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one_more(i)) for i in range(n)]
    return sum(task.result() for task in tasks) + sum(
        await asyncio.gather(*(add(i, 1) for i in range(n)))
    )


async def one_more(i: int) -> int:
    return await add(i, 1)


@workflow
async def time_and_chance() -> dict[str, Any]:
    began, chance, id = now(), random(), str(uuid4())
    loud = await shout("thread")
    await sleep(0.02)
    try:
        async with asyncio.timeout(0.05):
            await sleep("1h")
        late = False
    except TimeoutError:
        late = True
    return {
        "loud": loud,
        "later": now() > began,
        "late": late,
        "chance": 0 <= chance < 1,
        "id": len(id),
        "patched": patched("new-way"),
    }


@workflow
async def tries(name: str) -> dict[str, Any]:
    result: dict[str, Any] = {"at last": await works_at_last(f"{name} at last", 2)}
    try:
        await hopeless(f"{name} hopeless")
    except FatalError as error:
        result["fatal"] = str(error)
    result["later"] = await later(f"{name} later")
    try:
        await slow()
    except StepTimeout as error:
        result["slow"] = type(error).__name__
    return result


@workflow
async def fails() -> None:
    await add(1, 1)
    raise ValueError("the body fails")


@workflow
async def waits_for_orders(order: int) -> list[Any]:
    paid = await wait_for_event("paid", match={"order": order}, timeout="5m")
    large = await wait_for_event(f"sized-{order}", where=lambda p: p["size"] > 2, timeout="5m")
    nothing = await wait_for_event("never", timeout=0.02)
    return [paid.payload, large.payload, bool(nothing)]


@workflow
async def engine_child(n: int) -> int:
    if n < 0:
        raise ValueError("too few")
    return await add(n, 100)


@workflow
async def engine_parent() -> dict[str, Any]:
    both = await asyncio.gather(engine_child(1), engine_child(2))
    try:
        await engine_child(-1)
        failed = ""
    except RunFailed as error:
        failed = str(error.__cause__)
    other = await start(engine_child, 7)
    return {"children": list(both), "failed": failed, "other": await other.result()}


@workflow
async def cleans_up(name: str) -> None:
    try:
        await long(name)
    finally:
        await clean_up(f"{name} cleaned")


@workflow
async def knows_itself(name: str) -> dict[str, Any]:
    set_attributes(customer=name)
    await tell(50)
    await write_stream({"percent": 100})
    hook = await create_webhook()
    posted = await hook.wait(timeout="5m")
    await send_event(f"told {name}", {"by": run_context().id})
    return {"posted": posted.payload, "attributes": dict(run_context().attributes)}


@workflow(timeout=0.4)
async def too_long(name: str) -> None:
    try:
        await sleep("1h")
    finally:
        await clean_up(name)


@workflow
async def breaks_once(name: str) -> list[Any]:
    first = await add(1, 2)
    again = await works_unless_first(name)
    return [first, again]


@step(retries=0)
async def works_unless_first(name: str) -> str:
    DONE[name] += 1
    if DONE[name] == 1:
        raise ValueError("the first time")
    return "mended"


@workflow
async def pauses(name: str) -> int:
    total = 0
    for i in range(3):
        total = await add(total, 1)
        await wait_for_event(f"{name} {i}", timeout="5m")
    return total


@workflow(concurrency=1)
async def one_order_at_a_time(name: str) -> str:
    await wait_for_event(name, timeout="5m")
    return name


@workflow
async def takes_updates() -> list[Any]:
    items: list[Any] = []
    while len(items) < 2:
        update = await wait_for_update("add", timeout="5m")
        if update.payload is None:
            update.reject("there is nothing in it")
            continue
        items.append(await add(update.payload, 0))
        update.reply(len(items))
    return items


@workflow(on="engine.order", key="id")
async def starts_by_event(order: dict[str, Any]) -> int:
    return await add(order["id"], 1)


@workflow
async def told_of_failure(failure: Failure) -> str:
    return await shout(f"{failure.workflow}: {failure.error_message}")


@workflow(on_failure=told_of_failure)
async def has_a_handler() -> None:
    await hopeless("handled")


@step
async def repeat(text: str, times: int) -> str:
    return text * times


@workflow
async def carries_much(text: str) -> int:
    large = await repeat(text, 3)
    both = await asyncio.gather(repeat(large, 1), repeat(large, 1))
    told = await wait_for_event("much", timeout="5m")
    return len(large) + sum(map(len, both)) + len(told.payload)


@workflow
async def sleeps_after_a_step() -> None:
    await add(1, 1)
    await sleep("1d")


@workflow
async def outgrows(rounds: int) -> int:
    set_attributes(round=0)
    total = 0
    waiting = asyncio.ensure_future(wait_for_event("goes on", timeout="5m"))
    for i in range(rounds):
        set_attributes(round=i)
        total += sum(await asyncio.gather(add(i, 0), add(0, i)))
    await waiting
    return total


@workflow
async def holds_on(rounds: int, name: str) -> int:
    """One step is under way all the time, while others come and go."""
    slow = asyncio.ensure_future(until_told(name))
    total = 0
    for i in range(rounds):
        total += await add(i, 0)
    return total + await slow


@step
async def until_told(name: str) -> int:
    DONE[f"{name} began"] += 1
    while not DONE[name]:
        await asyncio.sleep(0.05)
    return 1000
