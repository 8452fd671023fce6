"""The way to servers in sandboxes: a reverse proxy for the names that `sandbox.url(port)` gives.

A connection whose request names such an address is taken over whole: once the name's signature is
checked, its bytes go to the port and the port's bytes come back, as they are and no faster than
either side takes them. So WebSockets, uploads and event streams need nothing of their own. Each
connection carries one request (both sides are told to close after it), so that each is checked.
Nothing of the inspector is reachable by these names, nor by them from a page inside: they are other
origins to a browser, and no cookie of ours is sent to them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast.errors import HoldfastError, SandboxError
from holdfast.sandbox.ports import Address, Announcement
from holdfast.sandbox.sandbox import Sandbox
from holdfast.sandbox.state import default_state
from holdfast.server.replies import error_reply

if TYPE_CHECKING:
    from holdfast.sandbox.streams import Stream

log = logging.getLogger("holdfast")
_HOST = re.compile(rb"\r?\nhost:[ \t]*([^\r\n]*)\r?\n", re.IGNORECASE)
_REQUEST_LINE = re.compile(rb"[A-Z]+ [^ \r\n]+ HTTP/1\.[01]\r?\n")
_PER_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer"})
_CHUNK = 64 * 1024
_MOST = 1000
_MOST_HEAD = 64 * 1024


def address_in(data: bytes) -> Address | None:
    """The sandbox's address that the head of a request names."""
    found = _HOST.search(data)
    return Address.parse(found[1].decode("latin-1").strip()) if found is not None else None


def may_name_one(data: bytes) -> bool:
    """Whether these first bytes of a request could yet turn out to name one."""
    if b"\n" in data and _REQUEST_LINE.match(data) is None:
        return False
    return data[:1].isalpha() and _HOST.search(data) is None


@dataclass(frozen=True, slots=True)
class Client:
    """A connection that was taken over, with what it has sent so far."""

    address: Address
    sent: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class PortProxy:
    """Serves the connections that are taken over, until it is closed; other processes of this user
    are told where it is."""

    def __init__(self, domain: str, port: int) -> None:
        self._state: Path = default_state()
        self._announced: Announcement | None = None
        self._serving: set[asyncio.Task[None]] = set()
        try:
            self._announced = Announcement(self._state, domain=domain, port=port)
        except OSError as error:
            log.warning("sandbox.url() won't find this server: %s", error)

    async def close(self) -> None:
        """End every connection."""
        if self._announced is not None:
            self._announced.withdraw()
            self._announced = None
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def take_over(self, transport: asyncio.Transport, address: Address, sent: bytes) -> None:
        """Serve a connection from now on."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        task = loop.create_task(self._serve(Client(address, sent, reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, client: Client) -> None:
        writer = client.writer
        try:
            try:
                if len(self._serving) > _MOST:
                    raise SandboxError("too many connections to sandboxes at once")
                await self._pass_on(client)
            except HoldfastError as error:
                writer.write(_refusal(error))
                await writer.drain()
        except ConnectionError:
            pass  # the client went away
        except Exception:
            log.exception("a connection to a sandbox's port")
        finally:
            with suppress(ConnectionError):
                writer.close()

    async def _pass_on(self, client: Client) -> None:
        address = client.address
        address.check(self._state)
        sandbox = await Sandbox.get(address.sandbox_id)
        try:
            async with await sandbox.dial(address.port) as stream:
                peer = cast("tuple[str, int] | None", client.writer.get_extra_info("peername"))
                await stream.write(_rewritten(client.sent, peer[0] if peer else ""))
                await _both_ways(client, stream)
        finally:
            sandbox.release()


async def _both_ways(client: Client, stream: Stream) -> None:
    """Until the server inside has said all; what the client still sends then is of no use."""

    async def up() -> None:
        try:
            while data := await client.reader.read(_CHUNK):
                await stream.write(data)
        except (ConnectionError, SandboxError):
            stream.close()  # nobody is there to hear the answer, or to give one
            return
        stream.write_eof()

    sending = asyncio.create_task(up())
    try:
        client.writer.write(await _answer(stream))
        while data := await stream.read(_CHUNK):
            client.writer.write(data)
            await client.writer.drain()
    finally:
        sending.cancel()
        await asyncio.wait([sending])


async def _answer(stream: Stream) -> bytes:
    """The beginning of the server's answer, which says that the connection ends with it: not every
    server does, and a client would use the connection again."""
    passed, data = b"", b""
    while True:
        piece = await stream.read(_CHUNK)
        data += piece
        head, end, rest = data.partition(b"\r\n\r\n")
        if not piece or len(data) > _MOST_HEAD:
            return passed + data
        if not end:
            continue
        status = head[9:12]
        if status == b"101" or not head.startswith(b"HTTP/1."):
            return passed + data
        if status.startswith(b"1"):  # the answer proper is still to come
            passed, data = passed + head + end, rest
            continue
        line, *fields = head.split(b"\r\n")
        kept = [f for f in fields if _field_name(f) not in ("connection", "keep-alive")]
        return passed + b"\r\n".join([line, *kept, b"Connection: close"]) + end + rest


def _field_name(field: bytes) -> str:
    return field.partition(b":")[0].decode("latin-1").strip().lower()


def _rewritten(sent: bytes, peer: str) -> bytes:
    """The request with a head that is true on its way inside: one request, and who asked."""
    head, _, rest = sent.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    kept = [line]
    upgrades = False
    for field in fields:
        key = _field_name(field)
        if key == "connection" and b"upgrade" in field.lower():
            upgrades = True
        if key not in _PER_HOP and not key.startswith("x-forwarded-"):
            kept.append(field)
    host = _HOST.search(head + b"\r\n")
    kept += [
        b"Connection: Upgrade" if upgrades else b"Connection: close",
        b"X-Forwarded-For: " + peer.encode(),
        b"X-Forwarded-Host: " + (host[1].strip() if host is not None else b""),
        b"X-Forwarded-Proto: http",
    ]
    return b"\r\n".join(kept) + b"\r\n\r\n" + rest


def _refusal(error: HoldfastError) -> bytes:
    reply = error_reply(error)
    head = [f"HTTP/1.1 {reply.status_code} {type(error).__name__}".encode()]
    head += [name + b": " + value for name, value in reply.raw_headers]
    return b"\r\n".join([*head, b"connection: close", b"", bytes(reply.body)])
