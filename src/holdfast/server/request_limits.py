"""How much of the server a client may have: requests a minute, bytes and seconds of a body."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from holdfast.errors import PayloadTooLarge, TooManyRequests, TooSlow

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

CLIENTS_REMEMBERED = 10_000


class ClientGone(Exception):
    """The client went away before its request was read."""


class RateLimit:
    """Per client so many requests a minute, of which a sixth may come at once."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._burst = max(per_minute / 6, 1.0)
        self._now = now
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Count a request; raises TooManyRequests if it is one too many."""
        if self._per_second <= 0:
            return
        now = self._now()
        left, at = self._clients.get(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        if left < 1:
            wait = (1 - left) / self._per_second
            raise TooManyRequests("too many requests", hint="slow down", retry_after=wait)
        self._clients[client] = (left - 1, now)
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_REMEMBERED:
            self._clients.popitem(last=False)


async def read_body(receive: Receive, declared: str | None, limit: int, seconds: float) -> bytes:
    """A request's whole body, refused as soon as it is known to be too large or too slow."""
    if declared is not None and declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk: bytes = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError:
        raise TooSlow(f"the request's body did not arrive within {seconds:g} s") from None


async def discard(receive: Receive, limit: int, seconds: float = 1.0) -> None:
    """Take what is left of a request that was refused, as far as it is little.

    A connection closed on unread data is reset, and the client may never see why.
    """
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while size <= limit:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the request's body is over {limit:,} bytes",
        hint="keep large data elsewhere and pass a reference, or raise the server's max_body",
    )


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out a body read before, and then what comes next."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
