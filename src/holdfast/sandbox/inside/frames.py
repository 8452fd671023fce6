"""Frames: how host and agent speak. Two lengths, a JSON header, raw bytes.

Both sides read with the same limits, so that neither can make the other buffer without end.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_LENGTHS = struct.Struct("!II")
MAX_HEADER = 4 * 1024 * 1024
MAX_PAYLOAD = 1024 * 1024

Header = dict[str, Any]


class BadFrame(ValueError):
    """The other side does not keep to the protocol."""


def encode(header: Header, payload: bytes = b"") -> bytes:
    """One frame, ready to be sent."""
    text = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogateescape")
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


class Decoder:
    """Gives the frames in a stream of bytes, however it is cut."""

    def __init__(self, *, max_header: int = MAX_HEADER, max_payload: int = MAX_PAYLOAD) -> None:
        self._buffer = bytearray()
        self._max_header, self._max_payload = max_header, max_payload

    def feed(self, data: bytes) -> list[tuple[Header, bytes]]:
        """Take bytes; return the frames they complete."""
        self._buffer += data
        frames: list[tuple[Header, bytes]] = []
        start, buffer = 0, self._buffer
        while len(buffer) - start >= _LENGTHS.size:
            header_length, payload_length = _LENGTHS.unpack_from(buffer, start)
            if header_length > self._max_header or payload_length > self._max_payload:
                raise BadFrame(f"a frame of {header_length} + {payload_length} bytes")
            body = start + _LENGTHS.size
            end = body + header_length + payload_length
            if len(buffer) < end:
                break
            frames.append(
                (
                    _header(bytes(buffer[body : body + header_length])),
                    bytes(buffer[body + header_length : end]),
                )
            )
            start = end
        del buffer[:start]
        return frames


def _header(text: bytes) -> Header:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame("a header that is no JSON") from error
    if not isinstance(header, dict):
        raise BadFrame("a header that is no object")
    return header  # pyright: ignore[reportUnknownVariableType]
