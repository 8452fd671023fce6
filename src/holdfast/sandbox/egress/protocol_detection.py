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
from enum import StrEnum

from holdfast.sandbox.egress import tls
from holdfast.sandbox.waiting import readable

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
    if data[:1] == bytes([tls.HANDSHAKE]):
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
