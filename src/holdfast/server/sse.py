"""Server-sent events: the wire form, and a response that is sent as its reader takes it.

Nothing is queued here: the next frame is asked for when the last one has left. A client that
takes nothing for a while is let go, so that it holds neither memory nor a place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

KEEP_ALIVE = b": keep-alive\n\n"
BEGIN = b"retry: 1000\n\n"
"""How soon a browser should come back after a lost connection, in milliseconds."""


def frame(data: bytes, *, id: int | None = None, event: str | None = None) -> bytes:
    """One event; `data` is on one line."""
    head = b"" if id is None else b"id: %d\n" % id
    if event is not None:
        head += b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (head, data)


class EventStream(Response):
    """A response whose frames come one by one, until they end or the client goes."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes], stall_seconds: float) -> None:
        self._frames = frames
        self._stall = stall_seconds
        headers = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}
        self.status_code = 200
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        # Our own server says how to end a connection whose other side takes nothing.
        abort = scope.get("state", {}).get("abort")
        pump = loop.create_task(self._pump(send, abort))
        gone = loop.create_task(_until_gone(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            await asyncio.wait({pump, gone})
            await self._frames.aclose()
        if not pump.cancelled():
            pump.result()

    async def _pump(self, send: Send, abort: Callable[[], None] | None) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": BEGIN, "more_body": True})
        async for data in self._frames:
            try:
                async with asyncio.timeout(self._stall):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except TimeoutError:
                if abort is not None:
                    abort()
                return  # without an end of the body: the client knows that it missed some
            await asyncio.sleep(0)  # sending need not wait, and others want to run
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
