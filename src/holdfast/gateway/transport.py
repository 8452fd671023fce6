"""The way to providers: connections of our own, or through a proxy if the environment asks for one.

What is sent and how long to wait is the exchange's business; what the bytes mean the formats'.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from holdfast.gateway.config import Timeouts
from holdfast.gateway.connections import Connections, Peer, kept_connections, place
from holdfast.gateway.http1 import Connection, HttpFault, head
from holdfast.gateway.meter import Meter
from holdfast.gateway.proxied import Proxied, kept_session

_READ_OUT_SECONDS, _READ_OUT_BYTES = 1.0, 65536


T = TypeVar("T")
_Kept = WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[T]]]
"""By event loop; the generator closes it with the loop."""


class Answer(Protocol):
    """An answer whose head has come; names of `headers` are in lower case."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def at_end(self) -> bool:
        """Everything has been read."""
        ...

    def take(self) -> bytes:
        """What has come and was not read yet, without waiting; often nothing."""
        ...

    async def read(self) -> bytes:
        """The next bytes, none at the end; raises HttpFault if it is cut."""
        ...

    def done(self) -> None:
        """Read to its end: its connection may be used again."""
        ...

    def close(self) -> None:
        """Not read to its end: its connection is of no more use."""
        ...


class _Direct:
    """An answer on a connection of ours."""

    __slots__ = ("_connection", "_peer", "_pool", "headers", "status")

    def __init__(self, pool: Connections, peer: Peer, connection: Connection) -> None:
        self._pool, self._peer, self._connection = pool, peer, connection
        self.status: int = connection.status
        self.headers: Mapping[str, str] = connection.headers

    @property
    def at_end(self) -> bool:
        return self._connection.at_end

    def take(self) -> bytes:
        return self._connection.take()

    async def read(self) -> bytes:
        return await self._connection.read()

    def done(self) -> None:
        self._pool.put_back(self._peer, self._connection)

    def close(self) -> None:
        self._connection.close()


class Transport:
    """A pool of connections per event loop, closed with the loop."""

    def __init__(self, timeouts: Timeouts, *, trust_env: bool = False) -> None:
        self._timeouts = timeouts
        self._trust_env = trust_env
        self._pools: _Kept[Connections] = WeakKeyDictionary()
        self._sessions: _Kept[Proxied] = WeakKeyDictionary()
        self._reading: set[asyncio.Task[None]] = set()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, meter: Meter) -> Answer:
        """Send a request and wait for the head of its answer.

        Raises TimeoutError or OSError if no connection was made (`meter.sent` is False then),
        HttpFault for what came of it, ValueError for a header that can't be sent.
        """
        loop = asyncio.get_running_loop()
        if self._trust_env:
            return await self._post_by_proxy(loop, url, headers, body, meter)
        pool = self._pools.get(loop)
        if pool is None:
            keeper = kept_connections()
            pool = self._pools[loop] = await anext(keeper), keeper
        there = place(url)
        first = head(there.path, there.host, headers, len(body))
        connection = pool[0].idle(there.peer)
        if connection is None:
            async with asyncio.timeout(self._timeouts.connect):
                connection = await pool[0].connect(there.peer)
        meter.sent = True
        try:
            await connection.send(first, body)
        except BaseException:
            connection.close()
            raise
        return _Direct(pool[0], there.peer, connection)

    async def _post_by_proxy(
        self,
        loop: asyncio.AbstractEventLoop,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        meter: Meter,
    ) -> Answer:
        session = self._sessions.get(loop)
        if session is None:
            keeper = kept_session(self._timeouts)
            session = self._sessions[loop] = await anext(keeper), keeper
        meter.sent = True  # aiohttp connects and sends in one go
        try:
            return await session[0].post(url, headers, body)
        except (OSError, ValueError):  # no connection, or nothing that could be sent
            meter.sent = False
            raise

    def finish_reading(self, answer: Answer) -> None:
        """Read what little is left of a reply, so that its connection can be used again."""
        task = asyncio.create_task(_read_out(answer))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def close(self) -> None:
        """Close this loop's connections."""
        loop = asyncio.get_running_loop()
        for kept in (self._pools.pop(loop, None), self._sessions.pop(loop, None)):
            if kept is not None:
                await kept[1].aclose()


async def _read_out(answer: Answer) -> None:
    left = _READ_OUT_BYTES
    try:
        async with asyncio.timeout(_READ_OUT_SECONDS):
            while left > 0 and (data := await answer.read()):
                left -= len(data)
    except (TimeoutError, HttpFault):
        pass  # it holds on to its stream: the connection is not worth waiting for
    if answer.at_end:
        answer.done()
    else:
        answer.close()
