"""Where an HTTP answer goes: to one client, or into a buffer that clients read from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from holdfast.gateway.formats.sse import SseParser

Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = dict[str, str]


class Sink(Protocol):
    """Takes an answer: its head once, then its body piece by piece."""

    started: bool

    async def start(self, status: int, headers: Headers) -> None: ...
    async def write(self, data: bytes, *, last: bool = False) -> None:
        """A piece of the body; `last` says that the answer is whole with it."""
        ...

    async def end(self) -> None: ...


class ClientSink:
    """Straight to the client, at the client's pace."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._ended = False
        self.started = False

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        pairs = [(k.lower().encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, *, last: bool = False) -> None:
        self._ended = last
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def end(self) -> None:
        if not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer at once."""
        head = {**headers, "content-length": str(len(body))}
        await ClientSink.start(self, status, head)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


class ArraySink(ClientSink):
    """To a client of Gemini that asked for a stream without `alt=sse`: the events come as the
    elements of one JSON array, as Google sends them, an error as the last of them."""

    def __init__(self, send: Send, max_event: int) -> None:
        super().__init__(send)
        self._events = SseParser(max_event)
        self._between = b"["

    async def start(self, status: int, headers: Headers) -> None:
        await super().start(status, {**headers, "content-type": "application/json; charset=UTF-8"})

    async def write(self, data: bytes, *, last: bool = False) -> None:
        said = b""
        for event in self._events.feed(data):
            said += self._between + event
            self._between = b"\n,\r\n"
        if last or said:
            await super().write(said + b"]" if last else said, last=last)

    async def end(self) -> None:
        if not self._ended:
            await super().write((b"[" if self._between == b"[" else b"") + b"]", last=True)

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        await super().whole(status, headers, b"[" + body + b"]")


class BufferSink:
    """Into memory: the call goes on whoever reads; each reader gets everything from the start.

    The piece that makes the answer whole is let go with `end`, after the call's end is on
    record: whoever saw a whole answer can have it again.
    """

    def __init__(self) -> None:
        self.started = False
        self.status = 0
        self.headers: Headers = {}
        self.chunks: list[bytes] = []
        self._last: list[bytes] = []
        self.ended = False
        self._news = asyncio.Event()

    async def start(self, status: int, headers: Headers) -> None:
        self.started, self.status, self.headers = True, status, headers
        self._wake()

    async def write(self, data: bytes, *, last: bool = False) -> None:
        if last:
            self._last.append(data)  # held until the call's end is on record
        else:
            self.chunks.append(data)
            self._wake()

    async def end(self) -> None:
        self.chunks.extend(self._last)
        self._last.clear()
        self.ended = True
        self._wake()

    async def news(self) -> None:
        """Wait for the next change."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def read_to(self, client: ClientSink, more: Headers) -> None:
        """Hand everything on to one reader, as it comes."""
        at = 0
        while True:
            news = self._news
            if self.started and not client.started:
                await client.start(self.status, {**self.headers, **more})
            while at < len(self.chunks):
                await client.write(self.chunks[at])
                at += 1
            if self.ended:
                await client.end()
                return
            if news is self._news:
                await news.wait()

    def packed(self) -> bytes:
        """The whole answer as one text, to be kept."""
        head = json.dumps([self.status, self.headers]).encode()
        return head + b"\n" + b"".join((*self.chunks, *self._last))


def unpacked(packed: bytes) -> tuple[int, Headers, bytes]:
    """Status, headers and body of a kept answer."""
    head, _, body = packed.partition(b"\n")
    status, headers = json.loads(head)
    return status, headers, body


_RETURNED = ("request-id", "x-request-id", "openai-", "anthropic-", "x-ratelimit-")


def returned_headers(headers: Mapping[str, str]) -> Headers:
    """The provider's headers that clients may see."""
    lower = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lower.items() if name.startswith(_RETURNED)}
