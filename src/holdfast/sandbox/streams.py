"""Streams: bytes to and from something in a sandbox, such as a server's port or a terminal.

Both directions have a window (`inside.flows`): `write` waits until the other side has taken what
was sent before, and what nobody reads here is not sent from there. A stream ends with its
sandbox, with its reader and writer told so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from holdfast.errors import PortClosed, SandboxError, SandboxGone
from holdfast.sandbox.channel import Channel, file_error
from holdfast.sandbox.inside.flows import CHUNK, WINDOW
from holdfast.sandbox.inside.frames import Header

_SLACK = 256 * 1024
"""Bytes beyond the window that a terminal may send when its program ends."""


class Stream:
    """A two-way stream of bytes: `read` until it gives nothing, `write`, `close`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._key = -1
        self._arrived: deque[bytes] = deque()
        self._held = 0
        self._news = asyncio.Event()
        self._room = WINDOW
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._over = False
        self._closed = False
        self._failure: str | None = None

    def take_number(self, key: int) -> None:
        """The number its request goes by."""
        self._key = key

    def receive(self, header: Header, payload: bytes) -> None:
        """An event from the agent."""
        event = header["ev"]
        if event == "data" and not self._closed:
            self._held += len(payload)
            if self._held > WINDOW + _SLACK:
                self._fail("the sandbox sent more than it was asked for")
                return
            self._arrived.append(payload)
        elif event == "taken":
            size = header.get("bytes")
            self._room = min(self._room + (size if isinstance(size, int) else 0), WINDOW)
            if self._room > 0:
                self._may_write.set()
        elif event in ("eof", "closed", "gone"):
            self._over = True
            if event != "eof":
                self._closed = True
                self._may_write.set()
                self._channel.drop(self._key)
        self._news.set()

    def _fail(self, why: str) -> None:
        self._failure = why
        self._over = True
        self.close()

    async def read(self, most: int = CHUNK) -> bytes:
        """What has come, at most so many bytes; nothing once no more will come."""
        while not self._arrived:
            if self._failure is not None:
                raise SandboxError(self._failure)
            if self._over:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._arrived.popleft()
        if len(data) > most:
            self._arrived.appendleft(data[most:])
            data = data[:most]
        self._held -= len(data)
        if not self._over:
            self._channel.tell("flow", flow=self._key, taken=len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Send; returns when all is on its way. Raises SandboxGone where nobody takes it."""
        rest = memoryview(data)
        while rest:
            await self._may_write.wait()
            if self._closed:
                raise SandboxGone(self._failure or "the other end has closed")
            piece = rest[: min(self._room, CHUNK)]
            rest = rest[len(piece) :]
            self._room -= len(piece)
            if self._room <= 0:
                self._may_write.clear()
            self._channel.tell("flow", bytes(piece), flow=self._key)

    def write_eof(self) -> None:
        """Send no more; the other side may still."""
        if not self._closed:
            self._channel.tell("flow", flow=self._key, last=True)

    def close(self) -> None:
        """Let go of it, both ways; repeating this does nothing more."""
        if not self._closed:
            self._end()
            self._channel.drop(self._key)
            self._channel.tell("hang_up", flow=self._key)

    def _end(self) -> None:
        self._closed = self._over = True
        self._may_write.set()
        self._news.set()

    @property
    def closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def dial(channel: Channel, port: int) -> Stream:
    """Connect to a port in the sandbox. Raises PortClosed where nobody listens."""
    stream = Stream(channel)
    connected: asyncio.Future[Header] = asyncio.get_running_loop().create_future()

    def receive(header: Header, payload: bytes) -> None:
        if connected.done():
            stream.receive(header, payload)
        else:
            connected.set_result(header)

    key = await channel.post("dial", {"port": port}, b"", receive, numbered=stream.take_number)
    try:
        told = await connected
    except asyncio.CancelledError:
        stream.close()
        raise
    if told["ev"] == "connected":
        return stream
    channel.drop(key)
    if told["ev"] == "gone":
        raise SandboxGone(channel.error or "the sandbox is gone")
    raise PortClosed(
        file_error(told).message, hint="is the server inside up, on this port of its loopback?"
    )
