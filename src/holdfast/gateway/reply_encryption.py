"""Replies kept for replay, sealed with a key that only whoever asks again can make.

The key is made of the caller's idempotency key and the request itself; the store holds neither
(only hashes), so that a secret in a reply is not readable in the store. Not a defence against
someone who knows both; they could ask the gateway as well.

The stream is SHAKE-256 keyed with a fresh nonce, authenticated with HMAC-SHA-256 over nonce and
text: standard parts from the standard library, each key used for one message.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from holdfast.errors import StoreError

_NONCE, _TAG = 16, 32


def key_hash(key: str) -> str:
    """How the store knows an idempotency key."""
    return hashlib.sha256(b"holdfast call key\0" + key.encode()).hexdigest()


def reply_key(key: str, request: bytes) -> bytes:
    """The secret that seals a reply: made of the caller's key and the request."""
    return hashlib.sha256(b"holdfast seal\0" + key.encode() + b"\0" + request).digest()


def encrypt(secret: bytes, text: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    packed = _mask(secret, nonce, text)
    return nonce + hmac.digest(secret, nonce + packed, "sha256") + packed


def decrypt(secret: bytes, sealed: bytes) -> bytes:
    """The text; raises StoreError if it was changed or sealed with another key."""
    nonce, tag, packed = sealed[:_NONCE], sealed[_NONCE : _NONCE + _TAG], sealed[_NONCE + _TAG :]
    if not hmac.compare_digest(tag, hmac.digest(secret, nonce + packed, "sha256")):
        raise StoreError("a stored reply is damaged, or was sealed for another request")
    return _mask(secret, nonce, packed)


def _mask(secret: bytes, nonce: bytes, text: bytes) -> bytes:
    size = len(text)
    stream = hashlib.shake_256(secret + nonce).digest(size)
    mixed = int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(size, "big")
