"""Connections to providers: made, kept for the next call, and closed with their event loop."""

from __future__ import annotations

import asyncio
import importlib
import socket
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

from holdfast.gateway.http1 import Connection

KEEP = 15.0
"""Seconds a connection is kept without use: less than servers keep theirs."""
_EYEBALLS = 0.25
_READ = 65536


Peer = tuple[str, int, bool]
"""Host, port, and whether by TLS."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address leads: whom to connect to, and what to ask for there."""

    peer: Peer
    host: str
    """As the `Host` header has it."""
    path: str


@lru_cache(1024)
def place(url: str) -> Place:
    """The parts of an `http` or `https` address."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = name if name.isascii() else name.encode("idna").decode()
    tls = parts.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    if parts.port is not None:
        shown = f"{shown}:{parts.port}"
    return Place((host, parts.port or (443 if tls else 80), tls), shown, parts.path or "/")


@cache
def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _eyeballs() -> Any:  # its types are open at one end
    return importlib.import_module("aiohappyeyeballs")


class Connections:
    """One event loop's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_READ)
        self._idle: dict[Peer, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def idle(self, peer: Peer) -> Connection | None:
        """A connection kept from an earlier call, if there is one."""
        idle = self._idle.get(peer)
        oldest = self._loop.time() - KEEP
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    def put_back(self, peer: Peer, connection: Connection) -> None:
        """Keep it for the next call, if it is fit for one."""
        if not connection.reusable:
            connection.close()
            return
        connection.rest()
        self._idle.setdefault(peer, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP, self._close_old)

    async def connect(self, peer: Peer) -> Connection:
        """A new connection; raises OSError, or ssl.SSLError."""
        host, port, tls = peer
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = await _eyeballs().start_connection(
            infos, happy_eyeballs_delay=_EYEBALLS, interleave=1, loop=self._loop
        )
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self._buffer),
                sock=sock,
                ssl=_trust() if tls else None,
                server_hostname=host if tls else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _close_old(self) -> None:
        self._sweep = None
        oldest = self._loop.time() - KEEP
        for peer, idle in list(self._idle.items()):
            kept = [one for one in idle if one.reusable and one.idle_since >= oldest]
            for one in idle:
                if one not in kept:
                    one.close()
            if kept:
                self._idle[peer] = kept
            else:
                del self._idle[peer]
        if self._idle:
            self._sweep = self._loop.call_later(KEEP, self._close_old)

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        idle = [connection for each in self._idle.values() for connection in each]
        self._idle.clear()
        for connection in idle:
            connection.close()
        for connection in idle:
            await connection.gone()


async def kept_connections() -> AsyncGenerator[Connections]:
    """This loop's connections, until the generator is closed.

    A generator, because an event loop closes its generators when it ends: a script that calls
    `asyncio.run(main())` and never heard of connections leaves none behind.
    """
    connections = Connections()
    try:
        yield connections
    finally:
        await connections.close()
