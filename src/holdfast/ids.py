"""Identifiers: a prefix, then 26 characters that sort by time.

The same id is used in URLs, on the command line, in logs and in tables.
Randomness and time are handed in, so that a simulation can repeat them.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from functools import lru_cache

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_DIGITS = (_ALPHABET * 8).encode()


def _base32(number: int, length: int) -> str:
    """`length` digits, an even number of them: two at a time is twice as quick."""
    return "".join([_PAIRS[number >> at & 1023] for at in range(length * 5 - 10, -1, -10)])


def new_id(prefix: str, *, at: float | None = None, entropy: bytes | None = None) -> str:
    """A new id such as `run_01K9V3…`: 48 bits of milliseconds, 80 bits of randomness."""
    milliseconds = int((time.time() if at is None else at) * 1000)
    moment = f"{_second(milliseconds >> 10)}{_PAIRS[milliseconds & 1023]}"
    if entropy is None:  # each byte gives the five bits of one digit
        return f"{prefix}_{moment}{os.urandom(16).translate(_DIGITS).decode()}"
    return f"{prefix}_{moment}{_base32(int.from_bytes(entropy[:10], 'big'), 16)}"


@lru_cache(16)
def _second(number: int) -> str:
    """The first eight digits of a moment, the same for about a second."""
    return _base32(number, 8)


def derived_id(prefix: str, parent: str, place: str) -> str:
    """The id of what `parent` makes at `place`: always the same, and sorted beside its parent."""
    moment = parent.partition("_")[2][:10]
    digest = hashlib.blake2b(f"{parent}\n{place}".encode(), digest_size=10).digest()
    return f"{prefix}_{moment}{_base32(int.from_bytes(digest, 'big'), 16)}"


def new_token() -> str:
    """An unguessable token (256 bits) for URLs that are their own permission."""
    return secrets.token_urlsafe(32)
