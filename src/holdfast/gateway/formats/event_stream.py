"""Amazon's event stream: length-prefixed frames with headers and checksums.

    total length, header length, CRC of both | headers | payload | CRC of all before it

A frame's event is handed on as one JSON object, `{"<event type>": <payload>}`, so that decoders see
the same as with server-sent events. The parser never holds more than `max_event` bytes of one.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterator

from holdfast.gateway.formats.json_fields import Json, WireError, dumps

_PRELUDE = struct.Struct(">II")
_CRC = struct.Struct(">I")
_HEAD, _TAIL = 12, 4
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type; 6 and 7 have a length of their own."""


class EventStreamParser:
    """Bytes in, the JSON of whole events out."""

    def __init__(self, max_event: int) -> None:
        self._held = bytearray()
        self._max = max_event

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The JSON of each event that `chunk` completes."""
        self._held += chunk
        while (size := self._size(self._held, 0)) is not None and len(self._held) >= size:
            frame = bytes(self._held[:size])
            del self._held[:size]
            yield _event(frame)

    def close(self) -> Iterator[bytes]:
        """Nothing: a frame says how long it is. Raises WireError if one is cut."""
        if self._held:
            raise WireError(f"the stream ended within a frame, after {len(self._held)} bytes of it")
        return iter(())

    def whole(self, data: bytes) -> int:
        """How many bytes at the beginning of `data` are whole frames."""
        end = 0
        while (size := self._size(data, end)) is not None and end + size <= len(data):
            end += size
        return end

    def _size(self, data: bytes | bytearray, at: int) -> int | None:
        """The size of the frame that begins here; None if too little of it is there to tell."""
        if len(data) - at < _HEAD:
            return None
        size, headers = _PRELUDE.unpack_from(data, at)
        (told,) = _CRC.unpack_from(data, at + 8)
        if told != crc32(data[at : at + 8]):
            raise WireError("a frame's head is damaged")
        if size > self._max:
            raise WireError(f"an event of the stream is over {self._max} bytes")
        if headers + _HEAD + _TAIL > size:
            raise WireError("a frame is shorter than its headers")
        return size


def _event(frame: bytes) -> bytes:
    if _CRC.unpack(frame[-_TAIL:])[0] != crc32(frame[:-_TAIL]):
        raise WireError("a frame is damaged")
    _, length = _PRELUDE.unpack_from(frame)
    headers = _headers(frame[_HEAD : _HEAD + length])
    payload = frame[_HEAD + length : -_TAIL]
    match headers.get(":message-type"):
        case "event":
            return b"{%b:%b}" % (dumps(headers.get(":event-type", "")), payload or b"{}")
        case "exception":
            return b"{%b:%b}" % (dumps(headers.get(":exception-type", "")), payload or b"{}")
        case "error":
            words = {"message": headers.get(":error-message", "")}
            return dumps({headers.get(":error-code") or "internalServerException": words})
        case other:
            raise WireError(f"a frame of type {other!r}")


def _headers(data: bytes) -> dict[str, str]:
    """The headers that are text; others are skipped."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            length = data[at]
            name = data[at + 1 : at + 1 + length].decode()
            kind = data[at + 1 + length]
            at += 2 + length
            if kind in _SIZES:
                at += _SIZES[kind]
                continue
            (size,) = struct.unpack_from(">H", data, at)
            if kind == _STRING:
                found[name] = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a frame's headers can't be read: {error}") from error
    return found


def frame(kind: str, payload: Json, *, exception: bool = False) -> bytes:
    """One event as bytes, or an exception."""
    name = ":exception-type" if exception else ":event-type"
    headers = b"".join(
        _header(key, value)
        for key, value in (
            (name, kind),
            (":content-type", "application/json"),
            (":message-type", "exception" if exception else "event"),
        )
    )
    body = json.dumps(payload, separators=(",", ":")).encode()
    prelude = _PRELUDE.pack(_HEAD + len(headers) + len(body) + _TAIL, len(headers))
    data = prelude + _CRC.pack(crc32(prelude)) + headers + body
    return data + _CRC.pack(crc32(data))


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return (
        bytes([len(name)]) + name.encode() + bytes([_STRING]) + struct.pack(">H", len(text)) + text
    )
