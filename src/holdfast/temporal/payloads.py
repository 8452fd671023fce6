"""How what Temporal is given is written: plain JSON or encrypted, and the large ones elsewhere.

Arguments, results, events and errors pass through Temporal's server and stay in its histories.
With a key nobody can read them there: AES-256-GCM, a nonce of its own for every payload.

Temporal refuses payloads over 2 MB, and messages over 4 MB. So what is large is kept in the store,
beside the run's journal and as long as it, and Temporal is given its name. With a key it is
encrypted there too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.converter import PayloadCodec as Codec

from holdfast.errors import ConfigError, StoreError
from holdfast.store.base import Store

log = logging.getLogger("holdfast")
T = TypeVar("T")

ENCODING = b"binary/encrypted"
NONCE = 12


def converter(encryption_key: str | None, large: ExternalStorage | None = None) -> DataConverter:
    """How to write payloads: encrypted if there is a key, and large ones where `large` says."""
    plain = dataclasses.replace(DataConverter.default, external_storage=large)
    if encryption_key is None:
        return plain
    try:
        key = base64.b64decode(encryption_key, validate=True)
    except binascii.Error as error:
        raise _bad_key(str(error)) from error
    if len(key) != 32:
        raise _bad_key(f"it has {len(key)} bytes")
    return dataclasses.replace(
        plain,
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


class StoredPayloads(StorageDriver):
    """Keeps large payloads in the store, with the run that they are of."""

    def __init__(self, store: Store, pause: float) -> None:
        """`pause`: seconds between two tries while the store can't be used."""
        self._store, self._pause = store, pause
        self.closed = False

    def name(self) -> str:
        """By which histories name it: never to be changed."""
        return "holdfast-store"

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        """Keep payloads, and say how they are had again."""
        run_id = (context.target.id if context.target is not None else None) or ""
        claims: list[StorageDriverClaim] = []
        for payload in payloads:
            data = payload.SerializeToString()
            name = await self._persist(lambda data=data: self._store.keep_blob(run_id, data))
            claims.append(StorageDriverClaim({"run": run_id, "name": name}))
        return claims

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """What was kept."""
        found: list[Payload] = []
        for claim in claims:
            run_id, name = claim.claim_data["run"], claim.claim_data["name"]
            data = await self._persist(
                lambda run_id=run_id, name=name: self._store.blob(run_id, name)
            )
            found.append(Payload.FromString(data))
        return found

    async def _persist(self, action: Callable[[], Awaitable[T]]) -> T:
        """As long as the store can't be used: what a finished step has brought must not be lost."""
        while True:
            try:
                return await action()
            except StoreError as error:
                if self.closed:
                    raise
                log.error("a payload waits for the store, trying again: %s", error)
                await asyncio.sleep(self._pause)
