"""Server-sent events: an incremental parser with bounds, and the writer.

The parser never holds more than `max_event` bytes of one event, whatever the peer sends.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.gateway.formats.json_fields import Json, WireError, dumps

DONE = b"data: [DONE]\n\n"


class SseParser:
    """Bytes in, the data of whole events out."""

    def __init__(self, max_event: int) -> None:
        self._line: list[bytes] = []  # the pieces of a line not yet ended
        self._data: list[bytes] = []
        self._held = 0
        self._begun = False
        self._max = max_event

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that `chunk` completes."""
        if b"\n" not in chunk:
            self._wait(chunk)
            return
        first, *lines = chunk.split(b"\n")
        rest = lines.pop()
        if self._line:
            first = b"".join((*self._line, first))
            self._held -= sum(map(len, self._line))
            self._line.clear()
        if not self._begun:
            self._begun, first = True, first.removeprefix(b"\xef\xbb\xbf")
        for raw in (first, *lines):
            line = raw[:-1] if raw.endswith(b"\r") else raw
            if line.startswith(b"data:"):
                self._hold(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                yield self._take()
        if rest:
            self._wait(rest)

    def _wait(self, piece: bytes) -> None:
        self._line.append(piece)
        self._count(piece)

    def whole(self, data: bytes) -> int:
        """How many bytes at the beginning of `data` are whole events."""
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            end = data.rfind(b"\r\n\r\n") + 4
        return end if end >= 4 else 0

    def close(self) -> Iterator[bytes]:
        """What the end of the stream completes: a last event without its blank line."""
        rest = b"".join(self._line)
        self._line.clear()
        if rest.startswith(b"data:"):
            self._data.append(rest[5:].strip())
        if self._data:
            yield self._take()

    def _hold(self, value: bytes) -> None:
        self._data.append(value)
        self._count(value)

    def _count(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._max:
            raise WireError(f"an event of the stream is over {self._max} bytes")

    def _take(self) -> bytes:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._held = 0
        return data


def event(data: Json, name: str | None = None) -> bytes:
    """One event as bytes."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + dumps(data) + b"\n\n"
