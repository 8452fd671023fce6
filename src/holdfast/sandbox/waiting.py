"""Waiting for a descriptor: a process that ends, a socket that has something to read."""

from __future__ import annotations

import asyncio


async def readable(fd: int, limit: float | None) -> bool:
    """Wait until `fd` can be read; False after `limit` seconds, if there is a limit."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        async with asyncio.timeout(limit):
            await ready
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
    return True
