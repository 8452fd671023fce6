"""Retries: what is worth another attempt, what is not, and when.

It prints:

    answered at attempt 3, 30 s later
    NotFound was given up at once: 1 attempt
"""

import asyncio

from holdfast import Backoff, RetryableError, RunFailed, start, step, step_context, workflow
from holdfast.testing import Harness


class NotFound(Exception):
    pass


@step(retries=4, backoff=Backoff(initial="200ms"), give_up_on=NotFound)
async def look_up(page: str) -> int:
    attempt = step_context().attempt
    if page == "/missing":
        raise NotFound(page)
    if attempt == 1:
        raise ConnectionError("connection reset")
    if attempt == 2:
        # The service has said when to come back: that is kept to.
        raise RetryableError("too many requests", retry_after="30s")
    return attempt


@workflow
async def crawl(page: str) -> int:
    return await look_up(page)


async def main() -> None:
    async with Harness() as harness:
        began = harness.clock.now()
        run = await start(crawl, "/home")
        attempt = await run.result()
        print(f"answered at attempt {attempt}, {harness.clock.now() - began:.0f} s later")
        run = await start(crawl, "/missing")
        try:
            await run.result()
        except RunFailed:
            [tried] = await run.steps()
            print(f"NotFound was given up at once: {tried.attempts} attempt")


if __name__ == "__main__":
    asyncio.run(main())
