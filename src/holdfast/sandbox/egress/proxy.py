"""The proxy of one sandbox: answers names, accepts connections, judges and records each.

Whether a connection may be made depends on the name it was made for, never on what a client
claims afterwards: a TLS server name or an HTTP host that says otherwise ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from holdfast.records.sandboxes import EgressRecord
from holdfast.sandbox.base import Listeners
from holdfast.sandbox.egress import addresses, http, names, tls
from holdfast.sandbox.egress.authority import Authority
from holdfast.sandbox.egress.watch import Attempts, Watch
from holdfast.sandbox.network import AllowedHost, Network
from holdfast.sandbox.waiting import readable

_FIRST_NAME = int(ipaddress.IPv4Address("127.64.0.1"))
_MOST_NAMES = 65536
_MOST_CONNECTIONS = 128
_MOST_REFUSALS = 1000
_CLIENT_FIRST = 1.0  # seconds to wait for the client to speak, before it may be a server-first one
_CONNECT_LIMIT = 15.0
_SAME_ATTEMPT = 0.1
NO_NETWORK = "the sandbox has no network"
_HTTP = 80  # where nothing else is spoken, so that no odd start gets around the check of hosts


@dataclass(slots=True)
class _Attempt:
    host: str
    port: int
    address: str | None = None
    sent: int = 0
    received: int = 0
    reason: str = ""
    allowed: bool = False
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    next_answer: asyncio.Future[bytes] | None = None
    """Wants the first bytes the server sends from now on."""


class Proxy:
    """Serves one sandbox's network until it is closed."""

    def __init__(
        self,
        sandbox_id: str,
        listeners: Listeners | None,
        network: Network,
        authority: Authority | None,
        record: Callable[[EgressRecord], None],
        *,
        resolve: addresses.Resolve | None = None,
    ) -> None:
        self._sandbox_id, self._listeners, self._network = sandbox_id, listeners, network
        self._authority, self._record = authority, record
        self._resolve = resolve or addresses.resolve
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals = 0
        self._last_refused = ("", 0.0)
        self._transport: asyncio.DatagramTransport | None = None
        self._watch: Watch | None = None
        asked = None if network.allow else self._asked_in_vain
        self._attempts = Attempts(frozenset(network.ports), self._unmet, asked)

    async def start(self) -> None:
        """Begin to serve."""
        if self._listeners is None:
            return
        loop = asyncio.get_running_loop()
        if self._listeners.names is not None:
            self._listeners.names.setblocking(False)
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _NameServer(self), sock=self._listeners.names
            )
            self._transport = transport
        for port, listener in self._listeners.connections.items():
            listener.setblocking(False)
            self._spawn(self._accept(port, listener))
        self._watch = Watch(self._listeners.watch, self._attempts.packet)

    async def close(self) -> None:
        """End every connection, and write down what they came to."""
        if self._transport is not None:
            self._transport.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._watch is not None:
            self._watch.close()
        if self._listeners is not None:
            self._listeners.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------------- names

    def answer(self, message: bytes) -> bytes | None:
        """The answer to a DNS message."""
        question = names.parse(message)
        if question is None:
            return None
        name = question.name.lower() if question.name else None
        if name is None or self._network.rule(name) is None:
            self._refused_name(question.shown)
            return names.answer(question, names.REFUSED)
        if name not in self._addresses and len(self._addresses) >= _MOST_NAMES:
            self._refused(name, None, f"more than {_MOST_NAMES} names")
            return names.answer(question, names.REFUSED)
        return names.answer(question, names.NO_ERROR, self._address_for(name))

    def _asked_in_vain(self, message: bytes) -> None:
        question = names.parse(message)
        if question is not None:
            self._refused_name(question.shown)

    def _refused_name(self, name: str) -> None:
        """Programs ask for both kinds of address at once: that is one attempt."""
        now = asyncio.get_running_loop().time()
        if self._last_refused[0] != name or now - self._last_refused[1] > _SAME_ATTEMPT:
            self._refused(name, None, "the name is not on the list")
        self._last_refused = (name, now)

    def _address_for(self, name: str) -> str:
        if name not in self._addresses:
            number = _FIRST_NAME + len(self._addresses)
            address = str(ipaddress.IPv4Address(number))
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]

    # ---------------------------------------------------------------- connections

    async def _accept(self, port: int, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            self.admit(connection, str(connection.getsockname()[0]), port)

    def packet(self, data: bytes) -> None:
        """The first packet of an attempt that nobody inside has met."""
        self._attempts.packet(data)

    def admit(self, connection: socket.socket, address: str, port: int) -> None:
        """Serve a connection that was made to this address and port inside."""
        if len(self._tasks) > _MOST_CONNECTIONS:
            self._refused(self._names.get(address, address), port, "too many connections")
            connection.close()
        else:
            self._spawn(self._serve(connection, address, port))

    async def _serve(self, connection: socket.socket, address: str, port: int) -> None:
        attempt = _Attempt(self._names.get(address, address), port)
        try:
            await self._judge(connection, attempt)
        except (http.Refused, _No) as error:
            attempt.allowed, attempt.reason = False, str(error)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            attempt.reason = attempt.reason or f"failed: {error or type(error).__name__}"
        finally:
            for writer in attempt.writers:
                writer.close()
            connection.close()
            self._write_down(attempt)

    async def _judge(self, connection: socket.socket, attempt: _Attempt) -> None:
        rule = self._network.rule(attempt.host, attempt.port)
        if rule is None:
            raise _No("neither the name nor the address is on the list")
        connection.setblocking(False)
        start = await _peek(connection)
        terminate = False
        if start[:1] == bytes([tls.HANDSHAKE]):
            await self._check_server_name(connection, attempt.host)
            terminate = bool(rule.headers)
        elif rule.headers and rule.to is None:
            raise _No("headers are added to encrypted requests only, or with to=")
        attempt.address, target_port = await self._target(rule, attempt)
        attempt.allowed, attempt.reason = True, f"rule {rule.name}"
        async with asyncio.timeout(_CONNECT_LIMIT):
            their_reader, their_writer = await asyncio.open_connection(
                attempt.address,
                target_port,
                ssl=_trusting(rule) if terminate else None,
                server_hostname=attempt.host if terminate else None,
                limit=http.MAX_HEAD,
            )
        attempt.writers.append(their_writer)
        reader, writer = await self._client(connection, attempt.host, terminate)
        attempt.writers.append(writer)
        if terminate or attempt.port == _HTTP or http.looks_like_http(start):
            await _exchange(attempt, rule, (reader, writer), (their_reader, their_writer))
        elif rule.headers:
            raise _No("only HTTP goes to a host whose requests get headers")
        else:
            await _splice(attempt, (reader, writer), (their_reader, their_writer))

    async def _check_server_name(self, connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 10
        while True:
            data = connection.recv(32768, socket.MSG_PEEK)
            try:
                hello = tls.parse(data)
                break
            except tls.Malformed as error:
                raise _No(f"TLS: {error}") from error
            except tls.Incomplete:
                if loop.time() > deadline:
                    raise _No("TLS: a ClientHello that never ends") from None
                await asyncio.sleep(0.01)
        if hello.server_name is not None and hello.server_name.lower().removesuffix(".") != host:
            raise _No(f"TLS for {hello.server_name[:100]!r} on a connection to {host}")

    async def _target(self, rule: AllowedHost, attempt: _Attempt) -> tuple[str, int]:
        if rule.to is not None:
            return rule.target()
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(attempt.host)
            return attempt.host, attempt.port  # an address the rule names itself
        try:
            found = await self._resolve(attempt.host, attempt.port)
        except OSError as error:
            raise _No(f"the name can't be resolved: {error}") from error
        allowed = [a for a in found if rule.private or addresses.is_public(a)]
        if not allowed or len(allowed) < len(found):
            raise _No(f"the name leads to {', '.join(found) or 'nothing'}: not a public address")
        return allowed[0], attempt.port

    async def _client(
        self, connection: socket.socket, host: str, terminate: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http.MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        context = None
        if terminate:
            assert self._authority is not None
            context = self._authority.context(host)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, sock=connection.dup(), ssl=context
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    # -------------------------------------------------------------------- records

    def _unmet(self, address: str, port: int, why: str) -> None:
        """An attempt that the sandbox's kernel has refused by itself."""
        self._refused(self._names.get(address, address), port, why)

    def _write_down(self, attempt: _Attempt) -> None:
        if not attempt.allowed:
            self._refused(attempt.host, attempt.port, attempt.reason, attempt.address)
            return
        self._record(
            EgressRecord(
                self._sandbox_id,
                datetime.now(UTC),
                attempt.host,
                attempt.port,
                True,
                attempt.reason,
                attempt.address,
                attempt.sent,
                attempt.received,
            )
        )

    def _refused(self, host: str, port: int | None, why: str, address: str | None = None) -> None:
        if not self._network.allow:
            why = NO_NETWORK
        self._refusals += 1
        if self._refusals > _MOST_REFUSALS:
            return
        if self._refusals == _MOST_REFUSALS:
            why = f"{why} (further refusals of this sandbox are not recorded)"
        now = datetime.now(UTC)
        self._record(EgressRecord(self._sandbox_id, now, host[:253], port, False, why, address))


class _No(Exception):
    """Not allowed; says why."""


class _NameServer(asyncio.DatagramProtocol):
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._proxy.answer(data)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, addr)


def _trusting(rule: AllowedHost) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=rule.ca)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _peek(connection: socket.socket) -> bytes:
    """The client's first bytes, left where they are; nothing from one that waits for the server."""
    if not await readable(connection.fileno(), _CLIENT_FIRST):
        return b""
    return connection.recv(16, socket.MSG_PEEK)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _splice(attempt: _Attempt, client: Streams, server: Streams) -> None:
    """Bytes both ways, until both are done."""

    async def there() -> None:
        while data := await client[0].read(65536):
            attempt.sent += len(data)
            server[1].write(data)
            await server[1].drain()
        if server[1].can_write_eof():
            server[1].write_eof()

    await _both(there(), _back(attempt, client, server))


async def _back(attempt: _Attempt, client: Streams, server: Streams) -> None:
    while data := await server[0].read(65536):
        attempt.received += len(data)
        if attempt.next_answer is not None and not attempt.next_answer.done():
            attempt.next_answer.set_result(data[:12])
        client[1].write(data)
        await client[1].drain()
    if client[1].can_write_eof():
        client[1].write_eof()


async def _exchange(attempt: _Attempt, rule: AllowedHost, client: Streams, server: Streams) -> None:
    """Requests one way, each checked; answers the other, as they come."""

    async def there() -> None:
        while True:
            try:
                head = (await client[0].readuntil(b"\r\n\r\n"))[:-4]
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    raise
                break
            ready = http.prepare(head, attempt.host, attempt.port, rule.headers)
            attempt.sent += len(ready.data)
            attempt.next_answer = asyncio.get_running_loop().create_future()
            server[1].write(ready.data)
            await server[1].drain()
            attempt.sent += await http.copy_body(client[0], server[1], ready.length)
            if ready.upgrades and (await attempt.next_answer).startswith(b"HTTP/1.1 101"):
                while data := await client[0].read(65536):
                    attempt.sent += len(data)
                    server[1].write(data)
                    await server[1].drain()
                break
        if server[1].can_write_eof():
            server[1].write_eof()

    await _both(there(), _back(attempt, client, server))


async def _both(there: Coroutine[None, None, None], back: Coroutine[None, None, None]) -> None:
    """Run both directions; a failure, or the server's end, ends the other too."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(there), loop.create_task(back)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
