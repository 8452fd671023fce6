"""One HTTP/1.1 connection to a provider: a request out, its answer in, and again.

Parsing is llhttp's (`httptools`). What is held of an answer is bounded whatever the peer sends:
64 KiB and one read of body that nobody has taken yet, 64 KiB of anything that is no body (head,
trailers, chunk marks). An answer is whole, or reading it raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import httptools

_AHEAD = 65536
_IDLE_TALK = 65536


class HttpFault(Exception):
    """The peer sent invalid HTTP."""


class HungUp(HttpFault):
    """The connection is gone before the answer was whole."""


@lru_cache(512)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def head(method: str, path: str, host: str, headers: Mapping[str, str], size: int) -> bytes:
    """The head of a request; raises ValueError for a header that would be more than one."""
    lines = _lines(method, path, host, tuple(headers.items()))
    return b"%bContent-Length: %d\r\n\r\n" % (lines, size)


@lru_cache(64)
def _lines(method: str, path: str, host: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """All lines but the one that differs from call to call."""
    lines = [f"{method} {path} HTTP/1.1\r\nHost: {host}"]
    lines.extend([f"{name}: {value}" for name, value in headers])
    text = "\r\n".join(lines)
    count = len(lines)
    if text.count("\n") != count or text.count("\r") != count or "\0" in text:
        raise ValueError("a header holds a line break")
    return f"{text}\r\n".encode()


class Connection(asyncio.BufferedProtocol):
    """`await send(…)`, then `status`, `headers` and `await read()` until it gives nothing.

    `buffer` is where bytes are read to; all connections of a loop can share one, since what is
    read is parsed at once.
    """

    status: int
    headers: dict[str, str]
    """Names in lower case; a repeated one is joined by commas."""

    def __init__(self, buffer: bytearray) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(buffer)
        self._transport: asyncio.Transport = cast(Any, None)
        self._parser: Any = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._fault: HttpFault | None = None
        self._gone = self._loop.create_future()
        self._paused = self._keep = self._busy = False
        self.idle_since = 0.0
        self._clear()

    def _clear(self) -> None:
        self.status, self.headers = 0, {}
        self._chunks: list[bytes] = []
        self._held = self._talk = 0
        self._begun = self.ended = False

    # --- ours -------------------------------------------------------------------------------

    async def send(self, head: bytes, body: bytes) -> None:
        """Send a request and wait for the head of its answer."""
        self._clear()
        self._busy = True
        if len(body) <= _AHEAD:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        while not self._begun:
            await self._news()

    async def read(self) -> bytes:
        """The next bytes of the body; none at its end. Raises HttpFault if it is cut."""
        while not self._chunks:
            if self.ended:
                return b""
            await self._news()
        return self.take()

    def take(self) -> bytes:
        """What has come of the body and was not read yet; none if there is nothing."""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def _news(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def at_end(self) -> bool:
        """Everything has been read."""
        return self.ended and not self._chunks

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the last one is answered, nothing is left over."""
        return (
            self.at_end
            and self._keep
            and self._fault is None
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )

    def rest(self) -> None:
        """Nothing is asked any more: whatever comes now ends the connection."""
        self._busy = False
        self.idle_since = self._loop.time()

    def close(self) -> None:
        self._transport.abort()

    async def gone(self) -> None:
        """Wait for the connection to be closed."""
        await asyncio.shield(self._gone)

    # --- the transport's --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._busy or self.ended:
            self._fail(HttpFault("it sent data without a request"))
            return
        self._talk += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            self._fail(HttpFault("it asked to switch protocols"))
        except httptools.HttpParserError as error:
            self._fail(HttpFault(str(error)))
        if self._chunks:
            self._wake()
        if self._talk > _IDLE_TALK:
            self._fail(HttpFault(f"over {_IDLE_TALK} bytes of headers or marks"))
        elif self._held > _AHEAD and not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        until_closed = not {"content-length", "transfer-encoding"} & self.headers.keys()
        if self._begun and until_closed and exc is None and self._fault is None:
            self.ended = True
            self._wake()
        elif not self.ended:
            self._fail(HungUp())
        self._keep = False

    def _fail(self, fault: HttpFault) -> None:
        self._fault = self._fault or fault
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the parser's -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.ended:  # a second answer to one question
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._begun:
            return  # a trailer
        key, text = _lower(name), value.decode("utf-8", "surrogateescape")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if status >= 200 and not self._begun:
            self.status, self._begun = status, True
            self._wake()

    def on_body(self, data: bytes) -> None:
        self._talk = 0
        if not self.ended:
            self._chunks.append(data)
            self._held += len(data)

    def on_message_complete(self) -> None:
        if not self._begun:  # "100 Continue" and its like: the answer is yet to come
            self.headers = {}
            return
        self._keep = not self.ended and self._parser.should_keep_alive()
        self.ended = True
        self._wake()
