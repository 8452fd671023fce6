"""What a client says first, and so which protocol it speaks: told before any of it is passed on.

TLS and HTTP carry a name of their own, which has to be checked; everything else is passed as it
is. Bytes that may yet become either are undecided, and wait: silence or slowness never makes a
connection one of "everything else". Lenient servers are the measure, not the standards: what any
of them might read as HTTP is HTTP here, and is then read strictly.
"""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from enum import StrEnum

from holdfast.sandbox.channel import readable

MOST = 32 * 1024
"""Bytes that may go by before it must be clear what they are."""
DECIDE_LIMIT = 10.0
"""Seconds from the first byte until it must be clear."""
_LOOK_AGAIN = 0.01
_SPACES = b" \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"  # what lenient servers split a line at
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]")
_PROXIED = b"\r\n\r\n\x00\r\nQUIT\n"


class Opening(StrEnum):
    """A protocol, as far as it matters here."""

    TLS = "TLS"
    HTTP = "HTTP"
    OTHER = "another protocol"
    FORWARDED = "the PROXY protocol"
    """A header for the server that says who connects, before anything else is spoken."""
    NOTHING = "nothing"
    """The client will say nothing: it has closed its side."""


def tell(data: bytes) -> Opening | None:
    """What these first bytes begin; None while they may begin several things."""
    if data[:1] == bytes([HANDSHAKE]):
        if len(data) < 2:
            return None
        return Opening.TLS if data[1] == 3 else Opening.OTHER
    if _PROXIED.startswith(data[: len(_PROXIED)]):
        return Opening.FORWARDED if len(data) >= len(_PROXIED) else None
    text = data.lstrip(_SPACES)
    word = _TOKEN.match(text)
    if not text:
        return None
    if word is None:
        return Opening.OTHER
    after = text[word.end() :]
    if not after:
        return None
    if after[0] not in _SPACES:
        return Opening.OTHER
    return _line(word.group().upper(), *text.partition(b"\n")[:2])


def _line(word: bytes, line: bytes, end: bytes) -> Opening | None:
    if word == b"PROXY":
        return Opening.FORWARDED
    # The oldest HTTP has no version in its line, and knows GET alone.
    if b"http/" in line.lower() or (word == b"GET" and line[3:].strip(b"\r")):
        return Opening.HTTP
    return Opening.OTHER if end or _NO_TEXT.search(line) else None


async def look(connection: socket.socket, silence: float | None) -> Opening | None:
    """What the client says first, left where it is; None if it stays silent for so long.

    Raises TimeoutError if it speaks, but not so that one can tell.
    """
    if not await readable(connection.fileno(), silence):
        return None
    async with asyncio.timeout(DECIDE_LIMIT):
        while True:
            data = connection.recv(MOST, socket.MSG_PEEK)
            if not data:
                return Opening.NOTHING
            found = tell(data)
            if found is not None:
                return found
            if len(data) >= MOST:
                raise TimeoutError
            await asyncio.sleep(_LOOK_AGAIN)  # readable all the time: there is no event to await


# --- the server name in a TLS ClientHello: read, never decrypted ---

HANDSHAKE = 0x16
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0


@dataclass(frozen=True, slots=True)
class Hello:
    """What a ClientHello says in the clear."""

    server_name: str | None


class Incomplete(Exception):
    """More bytes are needed."""


class Malformed(Exception):
    """No ClientHello any library would send."""


def parse_hello(data: bytes) -> Hello:
    """Read the first record of a TLS connection."""
    if len(data) < 5:
        raise Incomplete
    if data[0] != HANDSHAKE or data[1] != 3:
        raise Malformed("no TLS handshake")
    length = int.from_bytes(data[3:5], "big")
    if length > 16384 or length < 42:
        raise Malformed("a record of impossible length")
    if len(data) < 5 + length:
        raise Incomplete
    try:
        return Hello(_server_name(data[5 : 5 + length]))
    except (IndexError, UnicodeDecodeError) as error:
        raise Malformed("a ClientHello cut short") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, count: int) -> bytes:
        if self._place + count > len(self._data):
            raise IndexError
        piece = self._data[self._place : self._place + count]
        self._place += count
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def left(self) -> int:
        return len(self._data) - self._place


def _server_name(handshake: bytes) -> str | None:
    reader = _Reader(handshake)
    if reader.number(1) != _CLIENT_HELLO:
        raise Malformed("no ClientHello")
    body = _Reader(reader.vector(3))
    body.take(2 + 32)
    body.vector(1)
    body.vector(2)
    body.vector(1)
    if not body.left:
        return None
    extensions = _Reader(body.vector(2))
    found: str | None = None
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind != _SERVER_NAME:
            continue
        names = _Reader(_Reader(content).vector(2))
        while names.left:
            name_kind, name = names.number(1), names.vector(2)
            if name_kind == _HOST_NAME:
                if found is not None:
                    raise Malformed("two server names")
                found = name.decode("ascii")
    return found
