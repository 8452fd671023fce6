"""Undo what was done when a later step fails: try, except, and steps.

It prints:

    flight booked
    car booked
    hotel: fully booked
    car cancelled
    flight cancelled
"""

import asyncio

from holdfast import FatalError, start, step, workflow
from holdfast.testing import Harness


@step
async def book(what: str) -> str:
    if what == "hotel":
        raise FatalError("fully booked")  # never retried
    print(what, "booked")
    return what


@step(retries=20)
async def cancel(what: str) -> None:
    print(what, "cancelled")


@workflow
async def trip() -> bool:
    booked: list[str] = []
    for what in ("flight", "car", "hotel"):
        try:
            booked.append(await book(what))
        except FatalError as error:
            print(f"{what}: {error.message}")
            # A crash in here goes on from the last cancellation on record.
            for each in reversed(booked):
                await cancel(each)
            return False
    return True


async def main() -> None:
    async with Harness():
        assert await (await start(trip)).result() is False


if __name__ == "__main__":
    asyncio.run(main())
