"""Identifiers: a prefix, then 26 characters that sort by time.

The same id is used in URLs, on the command line, in logs and in tables.
Randomness and time are handed in, so that a simulation can repeat them.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]


def _base32_10(number: int, pairs: list[str] = _PAIRS) -> str:
    """The last 50 bits in 10 digits: two at a time, and without a loop, is thrice as quick."""
    return (
        f"{pairs[number >> 40 & 1023]}{pairs[number >> 30 & 1023]}{pairs[number >> 20 & 1023]}"
        f"{pairs[number >> 10 & 1023]}{pairs[number & 1023]}"
    )


def _base32_16(number: int, pairs: list[str] = _PAIRS) -> str:
    """80 bits in 16 digits."""
    high, low = number >> 40, number & 0xFF_FFFF_FFFF
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}"
        f"{pairs[high & 1023]}{pairs[low >> 30]}{pairs[low >> 20 & 1023]}"
        f"{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def new_id(prefix: str, *, at: float | None = None, entropy: bytes | None = None) -> str:
    """A new id such as `run_01K9V3…`: 48 bits of milliseconds, 80 bits of randomness."""
    milliseconds = int((time.time() if at is None else at) * 1000)
    tail = int.from_bytes((os.urandom(10) if entropy is None else entropy)[:10], "big")
    return f"{prefix}_{_base32_10(milliseconds)}{_base32_16(tail)}"


def derived_id(prefix: str, parent: str, place: str) -> str:
    """The id of what `parent` makes at `place`: always the same, and sorted beside its parent."""
    moment = parent.partition("_")[2][:10]
    digest = hashlib.blake2b(f"{parent}\n{place}".encode(), digest_size=10).digest()
    return f"{prefix}_{moment}{_base32_16(int.from_bytes(digest, 'big'))}"


def new_token() -> str:
    """An unguessable token (256 bits) for URLs that are their own permission."""
    return secrets.token_urlsafe(32)
