"""Look into a run that goes on, and ask it to do something: publish and updates.

It prints:

    {'done': 0, 'of': 5}
    now 7 items
    7 done
"""

import asyncio

from holdfast import publish, start, step, wait_for_event, wait_for_update, workflow
from holdfast.testing import Harness


@step
async def convert(item: int) -> int:
    return item * item


@workflow
async def convert_all(count: int) -> int:
    publish("progress", {"done": 0, "of": count})
    # An update is an event with an answer: the sender waits for the reply.
    if update := await wait_for_update("more", timeout="1h"):
        count += update.payload
        update.reply(f"now {count} items")
    await wait_for_event("go", timeout="1h")
    for item in range(count):
        await convert(item)
        publish("progress", {"done": item + 1, "of": count})
    return count


async def main() -> None:
    async with Harness() as harness:
        run = await start(convert_all, 5)
        await harness.until_blocked()
        print(await run.published("progress"))
        print(await run.update("more", 2))
        print(await run.result(), "done")


if __name__ == "__main__":
    asyncio.run(main())
