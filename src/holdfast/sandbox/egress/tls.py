"""The server name in a TLS ClientHello: read, never decrypted. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

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


def parse(data: bytes) -> Hello:
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
