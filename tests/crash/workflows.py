"""The workflows that are killed at every point: what they return does not depend on timing.

They are also what the recorded histories in `tests/histories` replay on: change one as a user
would, with `patched`, or record anew beside the old.

Every step leaves a line in the effects file, so that what was done can be compared with what
was recorded.
"""

from __future__ import annotations

import asyncio
import json
import os

from holdfast import (
    RetryableError,
    create_webhook,
    now,
    random,
    receive_webhook,
    send_event,
    set_attributes,
    sleep,
    start,
    step,
    step_context,
    uuid4,
    wait_for_event,
    workflow,
    write_stream,
)


def effect(what: str) -> None:
    """Note that something was done, where a kill can't take it back."""
    path = os.environ.get("CRASH_EFFECTS")
    if not path:
        return
    context = step_context()
    line = json.dumps([context.idempotency_key, context.attempt, context.step, what])
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


# --- one after the other ---


@step
async def add(total: int, more: int) -> int:
    effect(f"{total}+{more}")
    return total + more


@step
def double(total: int) -> int:
    effect(f"2*{total}")
    return 2 * total


@step
async def note(what: str) -> str:
    """Called with values that a replay must see again: another one would make the run stuck."""
    effect(what)
    return what


@workflow(name="crash-sequential")
async def sequential(first: int) -> list[int]:
    total = await add(first, 1)
    marks = [await note(f"{uuid4()} {random()} {now().isoformat()}")]
    total = await double(total)
    for more in range(3):
        total = await add(total, more)
        marks.append(await note(f"{now().isoformat()} {len(marks)}"))
    return [total, len(marks)]


# --- branches of unequal length ---


@step
async def link(branch: str, place: int, before: str) -> str:
    """One link of a chain. Longer and shorter ones, so that branches overtake one another."""
    effect(f"{branch}{place}")
    await asyncio.sleep(0.001 * ((len(branch) + 7 * place + ord(branch[0])) % 4))
    return f"{before}{branch}{place}"


async def chain(branch: str, length: int) -> str:
    text = ""
    for place in range(length):
        text = await link(branch, place, text)
    return text


@workflow(name="crash-parallel")
async def parallel(lengths: list[int]) -> dict[str, object]:
    gathered = await asyncio.gather(*(chain("abcd"[i], n) for i, n in enumerate(lengths)))
    async with asyncio.TaskGroup() as group:
        nested = group.create_task(_nested())
        short = group.create_task(chain("s", 1))
    arrived: list[str] = []
    chains = [chain("xyz"[i], n) for i, n in enumerate((2, 1, 3))]
    for each in asyncio.as_completed(chains):
        arrived.append(await each)
        # The order is the journal's. A replay in another one would not fit this call.
        await note(" then ".join(arrived))
    return {
        "gathered": gathered,
        "group": [nested.result(), short.result()],
        "arrived": sorted(arrived),
    }


async def _nested() -> list[str]:
    return list(await asyncio.gather(chain("m", 2), chain("n", 1)))


# --- retries, timers, events, webhooks, children, streams, attributes ---


@step(retries=3, backoff=0.01)
async def flaky(what: str) -> str:
    attempt = step_context().attempt
    effect(f"{what} {attempt}")
    await write_stream(f"{what} {attempt}", stream="tries")
    if attempt < 3:
        raise RetryableError(f"attempt {attempt}", retry_after=0.005)
    return f"{what} at last"


@step(retries=0)
async def hopeless() -> None:
    effect("hopeless")
    raise ValueError("never")


@step
async def post(token: str, answer: str) -> None:
    """Somebody outside uses the webhook; twice, for at-least-once is what the world does."""
    effect(answer)
    for _ in range(2):
        await receive_webhook(token, {"answer": answer}, id=step_context().idempotency_key)


@workflow(name="crash-child")
async def child(number: int) -> int:
    return await add(await double(number), 1)


@workflow(name="crash-endless")
async def endless() -> None:
    try:
        await sleep("100d")
    finally:
        await note("endless, cleaned up")


@workflow(name="crash-mixed")
async def mixed(name: str) -> dict[str, object]:
    set_attributes(customer=name)
    await write_stream("begun")
    tried, sum_of_child = await asyncio.gather(flaky("tried"), child(20))
    await sleep(0.02)
    hook = await create_webhook()
    _, answer = await asyncio.gather(post(hook.token, name), hook.wait(timeout="1h"))
    assert answer
    await send_event("crash-approval", {"for": name, "by": "boss"})
    await send_event("crash-approval", {"for": "somebody else", "by": "boss"})
    approval = await wait_for_event("crash-approval", match={"for": name}, timeout="1h")
    assert approval
    missed = await wait_for_event("crash-approval", match={"for": "nobody"}, timeout=0.01)
    try:
        await hopeless()
        failed = "nothing"
    except ValueError as error:
        failed = str(error)
    try:
        async with asyncio.timeout(0.03):
            await endless()
        cut = "nothing"
    except TimeoutError:
        cut = "the child"
    detached = await start(child, 4)
    other = await detached.result()
    await write_stream("done")
    set_attributes(customer=None, state="done")
    return {
        "tried": tried,
        "child": sum_of_child,
        "answer": answer.payload["answer"],
        "by": approval.payload["by"],
        "missed": bool(missed),
        "failed": failed,
        "cut": cut,
        "detached": other,
    }


WORKFLOWS = {
    "sequential": (sequential, (5,)),
    "parallel": (parallel, ([1, 4, 2, 3],)),
    "mixed": (mixed, ("ann",)),
}

EXPECTED = {
    "sequential": [15, 4],
    "parallel": {
        "gathered": ["a0", "b0b1b2b3", "c0c1", "d0d1d2"],
        "group": [["m0m1", "n0"], "s0"],
        "arrived": ["x0x1", "y0", "z0z1z2"],
    },
    "mixed": {
        "tried": "tried at last",
        "child": 41,
        "answer": "ann",
        "by": "boss",
        "missed": False,
        "failed": "never",
        "cut": "the child",
        "detached": 9,
    },
}
