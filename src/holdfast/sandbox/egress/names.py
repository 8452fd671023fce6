"""DNS messages, as far as one question and one answer go. Pure functions."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("!HHHHHH")
A, ANY = 1, 255
NO_ERROR, FORMAT_ERROR, NO_SUCH_NAME, REFUSED = 0, 1, 3, 5
_TIME_TO_LIVE = 5


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a client."""

    id: int
    name: str | None
    """None where the labels hold bytes no host name has."""
    kind: int
    shown: str
    """The name for people, whatever is in it."""
    raw: bytes
    """The question as it was asked, to be repeated in the answer."""


def parse(message: bytes) -> Question | None:
    """The question in a message, or None if it is no plain query."""
    if len(message) < _HEADER.size or len(message) > 512:
        return None
    id, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
    if flags & 0xF800 or questions != 1 or answers:
        return None
    labels: list[bytes] = []
    place = _HEADER.size
    while place < len(message) and (length := message[place]):
        if length > 63 or place + 1 + length > len(message):
            return None
        labels.append(message[place + 1 : place + 1 + length])
        place += 1 + length
    if place + 5 > len(message):
        return None
    kind = struct.unpack_from("!H", message, place + 1)[0]
    shown = repr(b".".join(labels))[2:-1]
    return Question(id, _joined(labels), kind, shown, message[_HEADER.size : place + 5])


def _joined(labels: list[bytes]) -> str | None:
    """The labels as a name; a label with a dot or a zero in it would read as another name."""
    if not labels:
        return None
    allowed = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    if any(byte not in allowed for label in labels for byte in label):
        return None
    return b".".join(labels).decode("ascii")


def answer(question: Question, code: int, address: str | None = None) -> bytes:
    """An answer: an address for an A question, nothing for others, or an error code."""
    record = b""
    if address is not None and question.kind in (A, ANY):
        packed = bytes(int(part) for part in address.split("."))
        record = struct.pack("!HHHIH", 0xC00C, A, 1, _TIME_TO_LIVE, 4) + packed
    flags = 0x8180 | code  # an answer, recursion available
    header = _HEADER.pack(question.id, flags, 1, 1 if record else 0, 0, 0)
    return header + question.raw + record
