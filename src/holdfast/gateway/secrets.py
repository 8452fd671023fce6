"""Secrets: redacted in what is kept and shown, encrypted in the replies kept for replay.

`Redactor` replaces known key values, and what looks like a secret. A kept reply is encrypted by a
key made of the caller's idempotency key and the request; the store holds only hashes of both, so
that nothing in a reply is readable there. It is no defence against someone who knows both: they
could ask the gateway as well.

AES-256-GCM by `cryptography`, with a fresh nonce for each reply; loaded with the first keyed call,
so that a process that makes none does not wait for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MASK = "[redacted]"
_SHAPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"sk-[A-Za-z0-9_-]{16,}", ("sk-",)),
    (r"hf_gw_[A-Za-z0-9_-]{16,}", ("hf_gw_",)),
    (r"gsk_[A-Za-z0-9]{16,}", ("gsk_",)),
    (r"xai-[A-Za-z0-9]{16,}", ("xai-",)),
    (r"AIza[A-Za-z0-9_-]{30,}", ("AIza",)),
    (r"gh[pousr]_[A-Za-z0-9]{30,}", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (r"github_pat_[A-Za-z0-9_]{30,}", ("github_pat_",)),
    (r"glpat-[A-Za-z0-9_-]{18,}", ("glpat-",)),
    (r"(?:AKIA|ASIA)[A-Z0-9]{16}", ("AKIA", "ASIA")),
    (r"xox[abprs]-[A-Za-z0-9-]{10,}", ("xox",)),
    (r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", (".eyJ",)),
    (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
        ("PRIVATE KEY-----",),
    ),
    (r"(?i:bearer\s+)[A-Za-z0-9._~+/=-]{16,}", ("bearer",)),
    (r"(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)", ("://",)),
)
"""Each shape, and the words of which a text must hold one, in any case, for it to be there."""


class Redactor:
    """Replaces secrets by a mask; the same text in, the same text out.

    Looking for a word is some hundred times quicker than trying every shape at every letter, so
    only the shapes whose words are there are looked for: what is found is the same. Words with an
    underscore or a hyphen are looked for only where there is one.
    """

    def __init__(self, values: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= 6}, key=len, reverse=True)
        shapes = [
            *((re.escape(value), (value,)) for value in known),
            *_SHAPES,
            *((pattern, ("",)) for pattern in patterns),
        ]
        self._shapes = [shape for shape, _ in shapes]
        self._words: dict[str, list[tuple[str, int]]] = {}
        for number, (_, words) in enumerate(shapes):
            for word in words:
                mark = next((mark for mark in "_-" if mark in word), "")
                self._words.setdefault(mark, []).append((word.lower(), number))
        self._compiled: dict[tuple[int, ...], re.Pattern[str]] = {}
        self._pattern(tuple(range(len(self._shapes))))  # a wrong pattern is found out here

    def __call__(self, text: str) -> str:
        lower = text.lower()
        there = [
            number
            for mark, words in self._words.items()
            if mark in lower
            for word, number in words
            if word in lower
        ]
        return self._pattern(tuple(sorted(set(there)))).sub(MASK, text) if there else text

    def _pattern(self, there: tuple[int, ...]) -> re.Pattern[str]:
        found = self._compiled.get(there)
        if found is None:
            if len(self._compiled) > 256:
                self._compiled.clear()
            shapes = [self._shapes[number] for number in there]
            found = re.compile("|".join(f"(?:{shape})" for shape in shapes))
            self._compiled[there] = found
        return found


_VERSION = b"HFR1"
_NONCE = 12


def key_hash(key: str) -> str:
    """How the store knows an idempotency key."""
    return hashlib.sha256(b"holdfast call key\0" + key.encode()).hexdigest()


def reply_key(key: str, request: bytes) -> bytes:
    """The secret that encrypts a reply: made of the caller's key and the request."""
    return hashlib.sha256(b"holdfast reply\0" + key.encode() + b"\0" + request).digest()


def encrypt(secret: bytes, text: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return _VERSION + nonce + _cipher(secret).encrypt(nonce, text, _VERSION)


def decrypt(secret: bytes, encrypted: bytes) -> bytes:
    """The text; raises StoreError if it was changed or encrypted with another key."""
    from cryptography.exceptions import InvalidTag

    if not encrypted.startswith(_VERSION):
        raise StoreError(
            "a stored reply was encrypted by an earlier version, which is not read any more",
            hint="use a new key: replies are kept for a day unless replays_for says otherwise",
        )
    rest = encrypted[len(_VERSION) :]
    try:
        return _cipher(secret).decrypt(rest[:_NONCE], rest[_NONCE:], _VERSION)
    except (InvalidTag, ValueError) as error:
        raise StoreError(
            "a stored reply is damaged, or was encrypted for another request"
        ) from error


def _cipher(secret: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret)
