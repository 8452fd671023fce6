"""How what Temporal is given is written: plain JSON, or encrypted.

Arguments, results, events and errors pass through Temporal's server and stay in its histories.
With a key nobody can read them there: AES-256-GCM, a nonce of its own for every payload.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.converter import PayloadCodec as Codec

from holdfast.errors import ConfigError, StoreError

ENCODING = b"binary/encrypted"
NONCE = 12


def converter(encryption_key: str | None) -> DataConverter:
    """How to write payloads: encrypted if there is a key."""
    if encryption_key is None:
        return DataConverter.default
    try:
        key = base64.b64decode(encryption_key, validate=True)
    except binascii.Error as error:
        raise _bad_key(str(error)) from error
    if len(key) != 32:
        raise _bad_key(f"it has {len(key)} bytes")
    return dataclasses.replace(
        DataConverter.default,
        payload_codec=EncryptionCodec(key),
        # Messages and stack traces of failures are not payloads unless one asks for it.
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def _bad_key(why: str) -> ConfigError:
    return ConfigError(
        f"temporal.encryption_key is no key: {why}",
        hint="32 random bytes in base64: openssl rand -base64 32",
    )


class EncryptionCodec(Codec):
    """Encrypts whole payloads, their metadata included."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt what goes to the server."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what comes from it; what was never encrypted is left as it is."""
        return [self._decrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE)
        data = nonce + self._cipher.encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCODING}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        nonce, data = payload.data[:NONCE], payload.data[NONCE:]
        try:
            return Payload.FromString(self._cipher.decrypt(nonce, data, None))
        except InvalidTag:
            raise StoreError(
                "a payload from Temporal can't be decrypted",
                hint="it was written with another temporal.encryption_key",
            ) from None
