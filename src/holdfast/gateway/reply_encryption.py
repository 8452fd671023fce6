"""Encryption of replies kept for replay, by a key that only whoever asks again can make.

The key is made of the caller's idempotency key and the request itself; the store holds neither
(only hashes), so that a secret in a reply is not readable in the store. Not a defence against
someone who knows both; they could ask the gateway as well.

AES-256-GCM by `cryptography`, with a fresh nonce for each reply. It is loaded with the first keyed
call: a process that makes none does not wait for it.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from holdfast.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
