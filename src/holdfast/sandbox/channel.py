"""The host's end of a sandbox's channel: requests, their answers, and events of commands.

What arrives is hostile until proven otherwise: sizes are limited, unknown answers are dropped,
and a frame that breaks the protocol ends the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from holdfast.errors import SandboxError, SandboxFileError, SandboxGone
from holdfast.sandbox.inside import frames

Listener = Callable[[frames.Header, bytes], None]
_MAX_HEADER = 256 * 1024
_MOST_WAITING = 32


class Channel(asyncio.Protocol):
    """One conversation with an agent."""

    def __init__(self) -> None:
        self._decoder = frames.Decoder(max_header=_MAX_HEADER)
        self._listeners: dict[int, Listener] = {}
        self._next = 0
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: str | None = None
        self._holders = 0

    @staticmethod
    async def open(sock: socket.socket) -> Channel:
        """Take over a connected socket."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(Channel, sock=sock)
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            arrived = self._decoder.feed(data)
        except frames.BadFrame as error:
            self._break(str(error))
            return
        for header, payload in arrived:
            key, event = header.get("id"), header.get("ev")
            if not isinstance(key, int) or not isinstance(event, str):
                self._break("an answer without id or event")
                return
            listener = self._listeners.get(key)
            if listener is not None:
                listener(header, payload)

    def _break(self, why: str) -> None:
        self.error = f"the sandbox broke the protocol: {why}"
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._may_write.set()
        if not self.closed.done():
            self.closed.set_result(None)
        gone: frames.Header = {"ev": "gone"}
        for listener in list(self._listeners.values()):
            listener(gone, b"")

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def close(self) -> None:
        """Hang up; the agent ends."""
        if self._transport is not None:
            self._transport.abort()

    async def post(
        self,
        op: str,
        header: frames.Header,
        payload: bytes,
        listener: Listener,
        *,
        numbered: Callable[[int], None] | None = None,
    ) -> int:
        """Send a request whose answers go to `listener`; returns its number.

        `numbered` is told the number before anything can be answered.
        """
        if self._transport is None or self.closed.done():
            raise SandboxGone(self.error or "the sandbox is gone")
        self._next += 1
        key = self._next
        if numbered is not None:
            numbered(key)
        self._listeners[key] = listener
        self._transport.write(frames.encode({**header, "op": op, "id": key}, payload))
        await self._may_write.wait()
        return key

    def listen(self, key: int, listener: Listener) -> None:
        """Hear events that answer no request of ours."""
        self._listeners[key] = listener

    def tell(self, op: str, payload: bytes = b"", **header: Any) -> None:
        """Send something that has no answer."""
        if self._transport is not None and not self.closed.done():
            self._transport.write(frames.encode({**header, "op": op, "id": 0}, payload))

    def drop(self, key: int) -> None:
        """No more answers are wanted."""
        self._listeners.pop(key, None)

    async def request(self, op: str, payload: bytes = b"", **header: Any) -> frames.Header:
        """Ask, and wait for the answer; raises what the agent reports."""
        answer, _ = await self.collect(op, payload, **header)
        return answer

    async def collect(
        self, op: str, payload: bytes = b"", *, most: int | None = None, **header: Any
    ) -> tuple[frames.Header, bytes]:
        """Ask, and gather the data that comes before the answer, at most `most` bytes."""
        done: asyncio.Future[frames.Header] = asyncio.get_running_loop().create_future()
        data = bytearray()

        def listen(header: frames.Header, payload: bytes) -> None:
            if done.done():
                return
            if header["ev"] == "data":
                data.extend(payload)
                if most is not None and len(data) > most:
                    done.set_exception(SandboxFileError(f"more than {most} bytes"))
            else:
                done.set_result(header)

        key = await self.post(op, header, payload, listen)
        try:
            answer = await done
        finally:
            self.drop(key)
        if answer["ev"] == "gone":
            raise SandboxGone(self.error or "the sandbox is gone")
        if answer["ev"] == "error":
            raise file_error(answer)
        return answer, bytes(data)

    async def stream(
        self, op: str, take: Callable[[bytes], None], *, idle: float, **header: Any
    ) -> None:
        """Ask, and hand over the data that comes before the answer, piece by piece, in a thread.

        No more is read from the sandbox than is being taken; `idle` seconds of silence end it.
        """
        arrived: asyncio.Queue[tuple[frames.Header, bytes]] = asyncio.Queue()
        held = False

        def listen(header: frames.Header, payload: bytes) -> None:
            nonlocal held
            arrived.put_nowait((header, payload))
            if arrived.qsize() > _MOST_WAITING and not held:
                held = True
                self.hold()

        key = await self.post(op, header, b"", listen)
        try:
            while True:
                try:
                    async with asyncio.timeout(idle):
                        answer, data = await arrived.get()
                except TimeoutError:
                    raise SandboxError(f"the sandbox said nothing for {idle:.0f} s") from None
                if answer["ev"] != "data":
                    break
                await asyncio.to_thread(take, data)
                if held and arrived.qsize() <= _MOST_WAITING // 2:
                    held = False
                    self.let_go()
        finally:
            self.drop(key)
            if held:
                self.let_go()
        if answer["ev"] == "gone":
            raise SandboxGone(self.error or "the sandbox is gone")
        if answer["ev"] == "error":
            raise file_error(answer)

    def hold(self) -> None:
        """Take nothing from the sandbox until everybody who asked for this has let go."""
        self._holders += 1
        if self._holders == 1 and self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def let_go(self) -> None:
        self._holders -= 1
        if self._holders == 0 and self._transport and not self._transport.is_closing():
            self._transport.resume_reading()


def file_error(answer: frames.Header) -> SandboxFileError:
    """The agent's report as an error."""
    number = answer.get("errno")
    number = number if isinstance(number, int) else 0
    path = answer.get("path")
    what = str(answer.get("message") or os.strerror(number))[:500]
    where = f"{str(path)[:500]}: " if path else ""
    return SandboxFileError(f"{where}{what}", errno=number, path=str(path) if path else None)


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
