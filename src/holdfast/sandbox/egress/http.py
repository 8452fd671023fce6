"""HTTP/1 requests on their way out: each one's host is checked, and headers are set.

Only requests are read, and strictly: what two servers might read differently is refused. The
answer goes back as it comes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.sandbox.network import plain_name

MAX_HEAD = 64 * 1024
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_READDRESSED = re.compile(rb"(?i)\b(?:h2c?|http|tls)\b")
"""Protocols to change to in which every request names its host anew, unseen by us."""
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")


class Refused(Exception):
    """A request that may not go out; says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request's head, ready to be sent."""

    data: bytes
    length: int | None
    """Of the body; None where it comes in chunks."""
    upgrades: bool


def prepare(head: bytes, host: str, port: int, add: Mapping[str, str]) -> Head:
    """Check a request's head (without its empty line) and set the headers to add."""
    first, *rest = head.split(b"\r\n")
    method, target, version = _request_line(first)
    fields = [_field(line) for line in rest]
    target = _path_of(target, host, port)
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) != 1:
        raise Refused("not exactly one Host header")
    _check_host(hosts[0], host, port)
    length = _length(fields)
    if length is None and version == b"0":
        raise Refused("a chunked body in HTTP/1.0, which has none")
    # Without its Upgrade header such a request is an ordinary one, which we go on to read.
    fields = [(n, v) for n, v in fields if n != b"upgrade" or not _READDRESSED.search(v)]
    upgrades = any(name == b"upgrade" for name, _ in fields)
    text = b"".join(name + b": " + value + b"\r\n" for name, value in _with(fields, add))
    line = method + b" " + target + b" HTTP/1." + version + b"\r\n"
    return Head(line + text + b"\r\n", length, upgrades)


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Method, target and minor version."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise Refused("not an HTTP/1 request")
    method, target, version = found.groups()
    # CONNECT would open a tunnel we can't see into; TRACE would show the headers that we add.
    if method.upper() in (b"CONNECT", b"TRACE"):
        raise Refused(f"{method.decode()} is not forwarded")
    return method, target, version


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise Refused("an invalid header")
    return found.group(1).lower(), found.group(2)


def _path_of(target: bytes, host: str, port: int) -> bytes:
    """The target as a path; an absolute one (as to a proxy) must name the host that is allowed."""
    if target.startswith(b"/") or target == b"*":
        return target
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        raise Refused("a target that is not a path")
    _check_host(re.split(rb"[/?#]", rest, maxsplit=1)[0], host, port)
    return b"/" + re.sub(rb"^[^/?#]*/?", b"", rest)


def _with(fields: list[tuple[bytes, bytes]], add: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers with those of the rule set: one that the client gave by the same name goes."""
    replaced = {name.lower().encode() for name in add} | {b"proxy-connection"}
    kept = [(name, value) for name, value in fields if name not in replaced]
    return kept + [(name.lower().encode(), value.encode("latin-1")) for name, value in add.items()]


def _check_host(value: bytes, host: str, port: int) -> None:
    name, colon, number = value.decode("latin-1").partition(":")
    if plain_name(name) != host or (colon and number != str(port)):
        raise Refused(f"a request for {value.decode('latin-1')[:100]!r} on a connection to {host}")


def _length(fields: list[tuple[bytes, bytes]]) -> int | None:
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if lengths or codings != [b"chunked"]:
            raise Refused("a body framed in two ways")
        return None
    if len(lengths) > 1 or (lengths and not re.fullmatch(rb"\d{1,15}", lengths[0])):
        raise Refused("an invalid Content-Length")
    return int(lengths[0]) if lengths else 0


async def copy_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None
) -> int:
    """Send a request's body on; returns how many bytes it was."""
    if length is not None:
        return await _copy(reader, writer, length)
    total = 0
    while True:
        line = await _line(reader)
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise Refused("a chunk without a length")
        size = int(found.group(1), 16)
        writer.write(f"{size:x}\r\n".encode())
        if size == 0:
            break
        total += await _copy(reader, writer, size)
        if await reader.readexactly(2) != b"\r\n":
            raise Refused("a chunk without an end")
        writer.write(b"\r\n")
    while line := await _line(reader):
        if _HEADER.fullmatch(line) is None:
            raise Refused("an invalid trailer")
    writer.write(b"\r\n")
    await writer.drain()
    return total


async def _line(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n"))[:-2]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> int:
    left = count
    while left:
        data = await reader.read(min(left, 65536))
        if not data:
            raise Refused("a body cut short")
        writer.write(data)
        await writer.drain()
        left -= len(data)
    return count
