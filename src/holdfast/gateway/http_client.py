"""The HTTP client for providers: connections kept per event loop, by a proxy if asked for.

What is sent and how long to wait for an answer is the exchange's business; what the bytes mean
the formats'. With `trust_env` the proxy variables of the environment decide the way: a request to
an `https` provider goes through a tunnel (CONNECT) in which only the provider sees it, one to a
plain `http` provider is handed to the proxy whole.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from holdfast.errors import ConfigError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Timeouts
from holdfast.gateway.http1 import Connection, HttpFault, head

KEEP = 15.0
"""Seconds a connection is kept without use: less than servers keep theirs."""
_EYEBALLS = 0.25
_READ = 65536
_READ_OUT_SECONDS, _READ_OUT_BYTES = 1.0, 65536
_MOST_OF_A_PROXY = 65536
_REMEMBERED = 1024


class Proxy(NamedTuple):
    """A proxy of the environment."""

    host: str
    port: int
    tls: bool
    authorization: str | None
    """The `Proxy-Authorization` header, if the proxy's URL holds a user."""


class Peer(NamedTuple):
    """Whom a connection leads to, and by which proxy; one connection serves one peer."""

    host: str
    port: int
    tls: bool
    proxy: Proxy | None = None


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
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return Place(Peer(host, parts.port or (443 if tls else 80), tls), shown, path)


def environment_proxy(url: str) -> Proxy | None:
    """The proxy that the environment names for this address, if any."""
    # Here and not above: it takes as long to import as all of the gateway. Any: typeshed knows
    # only some of its names.
    environment: Any = importlib.import_module("urllib.request")
    parts = urlsplit(url)
    proxies: dict[str, str] = environment.getproxies_environment()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or environment.proxy_bypass_environment(parts.netloc, proxies):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise ConfigError(
            f"{parts.scheme.upper()}_PROXY names no http or https proxy",
            hint="such as http://user:password@proxy.example:3128",
        )
    tls = proxy.scheme == "https"
    login = None
    if proxy.username is not None:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        login = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(proxy.hostname, proxy.port or (443 if tls else 80), tls, login)


@cache
def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _eyeballs() -> Any:  # its types are open at one end
    return importlib.import_module("aiohappyeyeballs")


class ProxyRefused(OSError):
    """The proxy made no tunnel: there is no connection, and nothing was sent."""


class _Tunnel(asyncio.Protocol):
    """The answer of a proxy to CONNECT: its status line, and no more than its head."""

    def __init__(self, proxy: Proxy) -> None:
        self._name = f"the proxy {proxy.host}:{proxy.port}"
        self._data = b""
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, transport: asyncio.Transport, target: str, login: str | None) -> None:
        """Ask for a tunnel and wait for it; raises ProxyRefused."""
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if login is not None:
            lines.append(f"Proxy-Authorization: {login}")
        transport.write("\r\n".join((*lines, "", "")).encode())
        await self._answered

    def data_received(self, data: bytes) -> None:
        self._data += data
        start, end, rest = self._data.partition(b"\r\n\r\n")
        if self._answered.done():
            return
        if not end:
            if len(start) > _MOST_OF_A_PROXY:
                self._refuse("answered without end")
            return
        words = start.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            self._refuse("does not speak HTTP")
        elif not 200 <= int(words[1]) < 300:
            self._refuse(f"refused the connection: {' '.join(words[1:])[:100]}")
        elif rest:  # nobody but it can have said that: TLS begins with us
            self._refuse("sent data without a request")
        else:
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._refuse("hung up")

    def _refuse(self, why: str) -> None:
        self._answered.set_exception(ProxyRefused(f"{self._name} {why}"))


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
        proxy = peer.proxy
        if proxy is None:
            return await self._connect(peer.host, peer.port, peer.tls)
        if not peer.tls:  # the proxy is asked for the whole address
            return await self._connect(proxy.host, proxy.port, proxy.tls)
        return await self._connect_through(proxy, peer)

    async def _connect(self, host: str, port: int, tls: bool) -> Connection:
        _, connection = await self._open(lambda: Connection(self._buffer), host, port, tls)
        return connection

    async def _connect_through(self, proxy: Proxy, peer: Peer) -> Connection:
        transport, tunnel = await self._open(
            lambda: _Tunnel(proxy), proxy.host, proxy.port, proxy.tls
        )
        shown = f"[{peer.host}]" if ":" in peer.host else peer.host
        connection = Connection(self._buffer)
        try:
            await tunnel.open(transport, f"{shown}:{peer.port}", proxy.authorization)
            secure = await self._loop.start_tls(
                transport, connection, _trust(), server_hostname=peer.host
            )
        except BaseException:
            transport.abort()
            raise
        if secure is None:  # it was closed before the handshake was over
            raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} hung up")
        connection.connection_made(secure)  # `start_tls` leaves that to its caller
        return connection

    async def _open(self, protocol: Any, host: str, port: int, tls: bool) -> tuple[Any, Any]:
        """A transport to this address and its protocol."""
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = await _eyeballs().start_connection(
            infos, happy_eyeballs_delay=_EYEBALLS, interleave=1, loop=self._loop
        )
        try:
            return await self._loop.create_connection(
                protocol,
                sock=sock,
                ssl=_trust() if tls else None,
                server_hostname=host if tls else None,
            )
        except BaseException:
            sock.close()
            raise

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


async def _kept_connections() -> AsyncGenerator[Connections]:
    """This loop's connections, until the generator is closed.

    A generator, because an event loop closes its generators when it ends: a script that calls
    `asyncio.run(main())` and never heard of connections leaves none behind.
    """
    connections = Connections()
    try:
        yield connections
    finally:
        await connections.close()


class Answer:
    """An answer whose head has come; names of `headers` are in lower case."""

    __slots__ = ("_connection", "_peer", "_pool", "headers", "status")

    def __init__(self, pool: Connections, peer: Peer, connection: Connection) -> None:
        self._pool, self._peer, self._connection = pool, peer, connection
        self.status: int = connection.status
        self.headers: Mapping[str, str] = connection.headers

    @property
    def at_end(self) -> bool:
        """Everything has been read."""
        return self._connection.at_end

    def take(self) -> bytes:
        """What has come and was not read yet, without waiting; often nothing."""
        return self._connection.take()

    async def read(self) -> bytes:
        """The next bytes, none at the end; raises HttpFault if it is cut."""
        return await self._connection.read()

    def done(self) -> None:
        """Read to its end: its connection may be used again."""
        self._pool.put_back(self._peer, self._connection)

    def close(self) -> None:
        """Not read to its end: its connection is of no more use."""
        self._connection.close()


class HttpClient:
    """A pool of connections per event loop, closed with the loop."""

    def __init__(self, timeouts: Timeouts, *, trust_env: bool = False) -> None:
        self._timeouts = timeouts
        self._trust_env = trust_env
        self._by_proxy: dict[str, Place] = {}
        self._pools: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[Connections, AsyncGenerator[Connections]]
        ] = WeakKeyDictionary()
        """By event loop; the generator closes them with the loop."""
        self._reading: set[asyncio.Task[None]] = set()

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, meter: Meter
    ) -> Answer:
        """Send a request and wait for the head of its answer.

        Raises TimeoutError or OSError if no connection was made (`meter.sent` is False then),
        HttpFault for what came of it, ValueError for a header that can't be sent.
        """
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            keeper = _kept_connections()
            pool = self._pools[loop] = await anext(keeper), keeper
        there = self._place(url) if self._trust_env else place(url)
        proxy = there.peer.proxy
        if proxy is not None and not there.peer.tls and proxy.authorization is not None:
            headers = {**headers, "Proxy-Authorization": proxy.authorization}
        first = head(method, there.path, there.host, headers, len(body))
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
        return Answer(pool[0], there.peer, connection)

    def _place(self, url: str) -> Place:
        """Where the address leads, by way of the environment's proxy."""
        found = self._by_proxy.get(url)
        if found is None:
            direct, proxy = place(url), environment_proxy(url)
            path = direct.path
            if proxy is not None and not direct.peer.tls:
                path = f"http://{direct.host}{path}"
            if len(self._by_proxy) >= _REMEMBERED:
                self._by_proxy.clear()
            found = Place(direct.peer._replace(proxy=proxy), direct.host, path)
            self._by_proxy[url] = found
        return found

    def finish_reading(self, answer: Answer) -> None:
        """Read what little is left of a reply, so that its connection can be used again."""
        task = asyncio.create_task(_read_out(answer))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def close(self) -> None:
        """Close this loop's connections."""
        kept = self._pools.pop(asyncio.get_running_loop(), None)
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
