"""Running the application in this process: the socket, uvicorn, and an orderly end.

When told to stop, it accepts nothing new, ends the event streams (their clients come back to
whoever serves next), and gives requests under way a moment. What becomes of runs is up to
whoever opened the engine.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from asyncio.events import TimerHandle
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.errors import ConfigError, ServerUnavailable
from holdfast.sandbox.ports import Address
from holdfast.server.change_feed import Feed
from holdfast.server.sandbox_ports import PortProxy, address_in, may_name_one
from holdfast.server.settings import ServerSettings

MAX_HEAD = 64 * 1024
"""The largest head of a request (path and headers), in bytes."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"{host!r} is no address to listen on: {error.strerror}") from error
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        hint = None
        if error.errno == errno.EADDRINUSE:
            hint = "another server is there already; --port 0 takes any free port"
        raise ServerUnavailable(
            f"{host}:{port} can't be listened on: {error.strerror}", hint=hint
        ) from error
    listener.listen(1024)
    return listener


def port_of(listener: socket.socket) -> int:
    """The port a socket is bound to."""
    return cast("tuple[str, int]", listener.getsockname())[1]


async def serve(
    app: FastAPI,
    listener: socket.socket,
    stop: asyncio.Future[Any],
    ready: Callable[[], None] = lambda: None,
    ports: PortProxy | None = None,
) -> None:
    """Serve on a socket until `stop` is done; calls `ready` once requests are answered.

    `ports`: where connections to the ports of sandboxes go; without it they are refused.
    """
    settings = cast("ServerSettings", app.state.settings)
    server = _Server(_config(app, settings, ports), ready)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
    await cast("Feed", app.state.feed).close()
    if ports is not None:
        await ports.close()
    server.should_exit = True
    await serving


def _config(app: FastAPI, settings: ServerSettings, ports: PortProxy | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_protocol(settings, ports),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )


class PlainServer(uvicorn.Server):
    """uvicorn, with signals left to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Server(PlainServer):
    """The same, with a word when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _protocol(settings: ServerSettings, proxy: PortProxy | None) -> type[HttpToolsProtocol]:
    class Protocol(_BoundedHead):
        head_seconds = settings.header_seconds
        ports = proxy

    return Protocol


class _BoundedHead(HttpToolsProtocol):
    """HTTP, with limits on the size of a request's head and on the time it takes to come.

    uvicorn itself has neither: a client could send headers for ever. Connections to a sandbox's
    port are handed over before anything else sees them.
    """

    ports: PortProxy | None = None
    head_seconds: float = 15.0
    _late: TimerHandle | None = None
    _head = 0
    _refusal = b""
    _held = b""
    """The beginning of a request, until it can be told whom it is for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.ports is not None and self._between():
            data, self._held = self._held + data, b""
            address = address_in(data)
            whole = b"\r\n\r\n" in data
            if address is not None and whole:
                self._hand_over(self.ports, address, data)
                return
            if not whole and len(data) <= MAX_HEAD and (address or may_name_one(data)):
                self._hold(data)
                return
        self._head += len(data)
        super().data_received(data)
        if self._late is not None and self._head > MAX_HEAD and not self.transport.is_closing():
            self._refuse(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")

    def _between(self) -> bool:
        """Whether what comes now begins a request."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._head and self._late is not None:
            return False  # in the middle of a head
        return cycle is None or (cycle.response_complete and not cycle.more_body)

    def _hold(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._held = data
        if self._late is None:
            self._expect_head()

    def _hand_over(self, ports: PortProxy, address: Address, data: bytes) -> None:
        self._head_came()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        ports.take_over(self.transport, address, data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # For a client that takes nothing more, and whose connection would else never end.
        self.scope.setdefault("state", {})["abort"] = self.transport.abort
        if self._late is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head = 0
        self._late = self.loop.call_later(self.head_seconds, self._too_late)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(b"HTTP/1.1 408 Request Timeout\r\n")

    def _refuse(self, status: bytes) -> None:
        self._head_came()
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._refusal = status  # an earlier request is being answered: not into its answer
            self.flow.pause_reading()
            return
        self.transport.write(status + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal and not self.transport.is_closing():
            self._refuse(self._refusal)
