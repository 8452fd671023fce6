"""The service in a process of its own, under uvicorn.

uvicorn writes the head of an answer by itself: one more system call here, and a client that wakes
twice for a short answer. `CorkedProtocol` holds the head back until the first piece of the body, or
the end of the loop's turn, whichever is first; nothing else is delayed or reordered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.errors import UsageError
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.service.app import GatewayApp

_HEAD = b"HTTP/1."


class CorkedProtocol(HttpToolsProtocol):
    """What `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, Cork(transport, self.loop)))


class Cork:
    """A transport that holds a head back until something follows it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        head = self._head
        if head is not None:
            self._head = None
            self._transport.writelines((head, data))
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        head = self._head
        if head is not None:
            self._head = None
            self._transport.write(head)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"{host}:{port} can't be listened on: {error.strerror}") from error
    listener.listen(1024)
    return listener


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_server(gateway: Gateway, *, host: str, open_to_all: bool) -> uvicorn.Server:
    """The server, not yet running; raises UsageError for one open to the world."""
    if open_to_all and not is_loopback(host):
        raise UsageError(
            f"a gateway without keys listens on loopback only, not on {host}",
            hint="make keys with `holdfast keys create` and leave out --open",
        )
    app = GatewayApp(gateway, open_to_all=open_to_all)
    return uvicorn.Server(
        uvicorn.Config(
            cast(Any, app),
            loop="uvloop",
            http=CorkedProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=30,
        )
    )


async def serve(gateway: Gateway, listener: socket.socket, *, open_to_all: bool = False) -> None:
    """Serve until told to stop (SIGINT, SIGTERM), then finish what is in flight."""
    host = cast("tuple[str, int]", listener.getsockname())[0]
    server = make_server(gateway, host=host, open_to_all=open_to_all)
    try:
        await server.serve(sockets=[listener])
    finally:
        await gateway.close()
