"""The proxy of one sandbox: answers names, accepts connections, judges and records each.

Whether a connection may be made depends on the name it was made for, never on what a client
claims afterwards: a TLS server name or an HTTP host that says otherwise ends it. Nothing a client
says is passed on before it is clear which of these it speaks, however long it takes to say it. On
ports where servers may speak first, what the server says is passed on meanwhile.
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
from typing import TYPE_CHECKING, cast

from holdfast.records.sandboxes import EgressRecord
from holdfast.sandbox.base import Listeners
from holdfast.sandbox.egress import dns, http, protocol_detection
from holdfast.sandbox.egress.attempts import Attempts, PacketReader
from holdfast.sandbox.egress.protocol_detection import Opening
from holdfast.sandbox.network import AllowedHost, Network

if TYPE_CHECKING:
    from holdfast.sandbox.egress.authority import Authority

_FIRST_NAME = int(ipaddress.IPv4Address("127.64.0.1"))
_MOST_NAMES = 65536
_MOST_CONNECTIONS = 128
_MOST_REFUSALS = 1000
_MOST_ALLOWED = 5000
_CLIENT_FIRST = 1.0  # seconds until the server is connected to without a word from the client
_SILENCE = 30.0  # seconds in which it must speak, where clients always do
_CONNECT_LIMIT = 15.0
_SAME_ATTEMPT = 0.1
NO_NETWORK = "the sandbox has no network"
_HTTP = 80  # where nothing but HTTP and TLS is spoken
_CLIENTS_SPEAK = (_HTTP, 443)


@dataclass(slots=True)
class _Attempt:
    host: str
    port: int
    address: str | None = None
    sent: int = 0
    received: int = 0
    reason: str = ""
    allowed: bool = False
    rule: str = ""
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    next_answer: asyncio.Future[bytes] | None = None
    """Wants the first bytes the server sends from now on."""


@dataclass(slots=True)
class _More:
    """Connections that are recorded together."""

    count: int = 0
    sent: int = 0
    received: int = 0


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
        resolve: dns.Resolve | None = None,
    ) -> None:
        self._sandbox_id, self._listeners, self._network = sandbox_id, listeners, network
        self._authority, self._record = authority, record
        self._resolve = resolve or dns.resolve
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[asyncio.Task[None], _Attempt] = {}
        self._refusals = self._allowed = 0
        self._more: dict[tuple[str, int], _More] = {}
        self._last_refused = ("", 0.0)
        self._transport: asyncio.DatagramTransport | None = None
        self._watch: PacketReader | None = None
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
        self._watch = PacketReader(self._listeners.watch, self._attempts.packet)

    def change(self, network: Network, authority: Authority | None) -> None:
        """Go by other rules from now on, and end what they do not allow, or allow differently."""
        before, self._network = self._network, network
        self._authority = authority or self._authority
        for task, attempt in list(self._under_way.items()):
            rule = network.rule(attempt.host, attempt.port)
            if rule is None or rule != before.rule(attempt.host, attempt.port):
                attempt.reason = "the rules changed"
                task.cancel()

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
        self._tell_more()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------------- names

    def answer(self, message: bytes) -> bytes | None:
        """The answer to a DNS message."""
        question = dns.parse_question(message)
        if question is None:
            return None
        name = question.name.lower() if question.name else None
        if name is None or self._network.rule(name) is None:
            self._refused_name(question.shown)
            return dns.answer(question, dns.REFUSED)
        if name not in self._addresses and len(self._addresses) >= _MOST_NAMES:
            self._refused(name, None, f"more than {_MOST_NAMES} names")
            return dns.answer(question, dns.REFUSED)
        return dns.answer(question, dns.NO_ERROR, self._address_for(name))

    def _asked_in_vain(self, message: bytes) -> None:
        question = dns.parse_question(message)
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
        task = asyncio.current_task()
        assert task is not None
        self._under_way[task] = attempt
        try:
            await self._judge(connection, attempt)
        except (http.Refused, _No) as error:
            attempt.allowed, attempt.reason = False, str(error)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            attempt.reason = attempt.reason or f"failed: {error or type(error).__name__}"
        finally:
            del self._under_way[task]
            for writer in attempt.writers:
                writer.close()
            connection.close()
            self._write_down(attempt)

    async def _judge(self, connection: socket.socket, attempt: _Attempt) -> None:
        rule = self._network.rule(attempt.host, attempt.port)
        if rule is None:
            raise _No("neither the name nor the address is on the list")
        connection.setblocking(False)
        client_first = attempt.port in _CLIENTS_SPEAK or bool(rule.headers)
        opening = await _look(connection, _SILENCE if client_first else _CLIENT_FIRST)
        if opening is None and client_first:
            raise _No(f"not a word within {_SILENCE:.0f} s")
        if opening is not None:
            await self._check(opening, connection, attempt, rule)
        attempt.address, target_port = await self._target(rule, attempt)
        attempt.allowed, attempt.reason, attempt.rule = True, f"rule {rule.name}", rule.name
        if opening is Opening.NOTHING and client_first:
            return
        terminate = opening is Opening.TLS and bool(rule.headers)
        async with asyncio.timeout(_CONNECT_LIMIT):
            server = await asyncio.open_connection(
                attempt.address,
                target_port,
                ssl=_trusting(rule) if terminate else None,
                server_hostname=attempt.host if terminate else None,
                limit=http.MAX_HEAD,
            )
        attempt.writers.append(server[1])
        if opening is None:
            await self._server_first(connection, attempt, rule, server)
            return
        client = await self._client(connection, attempt.host, terminate)
        attempt.writers.append(client[1])
        back = _back(attempt, server[0], _sending(client[1]))
        if terminate or opening is Opening.HTTP:
            await _both(_requests(attempt, rule, client[0], server[1]), back)
        else:
            await _both(_bytes(attempt, client[0], server[1]), back)

    async def _server_first(
        self, connection: socket.socket, attempt: _Attempt, rule: AllowedHost, server: Streams
    ) -> None:
        """What the server says goes back at once; what the client says waits until it is clear."""
        loop = asyncio.get_running_loop()

        async def send(data: bytes) -> None:
            if data:
                await loop.sock_sendall(connection, data)
            else:
                connection.shutdown(socket.SHUT_WR)

        async def there() -> None:
            opening = await _look(connection, None)
            assert opening is not None
            await self._check(opening, connection, attempt, rule)
            client = await self._client(connection, attempt.host, terminate=False)
            attempt.writers.append(client[1])
            if opening is Opening.HTTP:
                await _requests(attempt, rule, client[0], server[1])
            else:
                await _bytes(attempt, client[0], server[1])

        await _both(there(), _back(attempt, server[0], send))

    async def _check(
        self, opening: Opening, connection: socket.socket, attempt: _Attempt, rule: AllowedHost
    ) -> None:
        """Refuse what may not go out, by what it is."""
        if opening is Opening.FORWARDED:
            raise _No("the PROXY protocol is not forwarded")
        if opening is Opening.TLS:
            await self._check_server_name(connection, attempt.host)
        elif rule.headers and rule.to is None:
            raise _No("headers are added to encrypted requests only, or with to=")
        elif opening is Opening.OTHER and rule.headers:
            raise _No("only HTTP goes to a host whose requests get headers")
        elif opening is Opening.OTHER and attempt.port == _HTTP:
            raise _No(f"no HTTP on port {_HTTP}")

    async def _check_server_name(self, connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + protocol_detection.DECIDE_LIMIT
        while True:
            data = connection.recv(protocol_detection.MOST, socket.MSG_PEEK)
            try:
                hello = protocol_detection.parse_hello(data)
                break
            except protocol_detection.Malformed as error:
                raise _No(f"TLS: {error}") from error
            except protocol_detection.Incomplete:
                if loop.time() > deadline or len(data) >= protocol_detection.MOST:
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
        allowed = [a for a in found if rule.private or dns.is_public(a)]
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
        self._allowed += 1
        if self._allowed > _MOST_ALLOWED:
            more = self._more.setdefault((attempt.rule, attempt.port), _More())
            more.count += 1
            more.sent += attempt.sent
            more.received += attempt.received
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

    def _tell_more(self) -> None:
        """One record a rule for the connections beyond those that have one each."""
        now = datetime.now(UTC)
        for (rule, port), more in self._more.items():
            why = f"rule {rule} ({more.count} further connections in one record)"
            self._record(
                EgressRecord(
                    self._sandbox_id, now, rule, port, True, why, None, more.sent, more.received
                )
            )
        self._more.clear()

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


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Send = Callable[[bytes], Coroutine[None, None, None]]
"""Says something to the client; nothing means that there will be no more."""


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


async def _look(connection: socket.socket, silence: float | None) -> Opening | None:
    try:
        return await protocol_detection.look(connection, silence)
    except TimeoutError:
        raise _No("what the client speaks can't be told from how it begins") from None


def _sending(writer: asyncio.StreamWriter) -> Send:
    async def send(data: bytes) -> None:
        if data:
            writer.write(data)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()

    return send


async def _bytes(
    attempt: _Attempt, client: asyncio.StreamReader, server: asyncio.StreamWriter
) -> None:
    """What the client says, as it is."""
    while data := await client.read(65536):
        attempt.sent += len(data)
        server.write(data)
        await server.drain()
    if server.can_write_eof():
        server.write_eof()


async def _back(attempt: _Attempt, server: asyncio.StreamReader, send: Send) -> None:
    """What the server says, as it is; nothing more is its end."""
    while data := await server.read(65536):
        attempt.received += len(data)
        if attempt.next_answer is not None and not attempt.next_answer.done():
            attempt.next_answer.set_result(data[:12])
        await send(data)
    await send(b"")


async def _requests(
    attempt: _Attempt,
    rule: AllowedHost,
    client: asyncio.StreamReader,
    server: asyncio.StreamWriter,
) -> None:
    """What the client says, request by request, each checked."""
    while True:
        try:
            head = (await client.readuntil(b"\r\n\r\n"))[:-4]
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            break
        ready = http.prepare(head, attempt.host, attempt.port, rule.headers)
        attempt.sent += len(ready.data)
        attempt.next_answer = asyncio.get_running_loop().create_future()
        server.write(ready.data)
        await server.drain()
        attempt.sent += await http.copy_body(client, server, ready.length)
        if ready.upgrades and (await attempt.next_answer).startswith(b"HTTP/1.1 101"):
            await _bytes(attempt, client, server)
            return
    if server.can_write_eof():
        server.write_eof()


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
