"""Google Cloud's credentials, for Vertex AI: a token for an hour, made anew before it expires.

They come from where Google's own libraries look: the file that GOOGLE_APPLICATION_CREDENTIALS
names, the one of `gcloud auth application-default login`, the machine's own service. The file is
a service account (a signed claim is exchanged for a token) or a user (a refresh token is).
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlencode

from holdfast.errors import AuthRejected, ProviderError
from holdfast.gateway.cloud_settings import google_file
from holdfast.gateway.credential_source import fetch_json
from holdfast.gateway.formats.json_fields import dumps
from holdfast.gateway.http_client import HttpClient

_EARLY = 300.0
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKENS = "https://oauth2.googleapis.com/token"
_MACHINE = "metadata.google.internal"


@dataclass(frozen=True, slots=True)
class GoogleToken:
    value: str = field(repr=False)
    expires: float


class GoogleCredentials:
    """Makes tokens, and keeps one until it expires."""

    def __init__(self, environ: Mapping[str, str], client: HttpClient) -> None:
        self._environ, self._client = environ, client
        self._kept: GoogleToken | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """A token that is good for some minutes at least; raises AuthRejected."""
        async with self._lock:
            kept = self._kept
            if kept is None or kept.expires - _EARLY < time.time():
                kept = self._kept = await self._find()
            return kept.value

    async def _find(self) -> GoogleToken:
        try:
            file = google_file(self._environ)
            if file is None:
                return await self._machine()
            held = cast("dict[str, Any]", json.loads(file.read_text(encoding="utf-8")))
            match held.get("type"):
                case "service_account":
                    return await self._exchange(
                        held.get("token_uri") or _TOKENS,
                        grant_type="urn:ietf:params:oauth:grant-type:jwt-bearer",
                        assertion=_claim(held),
                    )
                case "authorized_user":
                    return await self._exchange(
                        held.get("token_uri") or _TOKENS,
                        grant_type="refresh_token",
                        refresh_token=held["refresh_token"],
                        client_id=held["client_id"],
                        client_secret=held["client_secret"],
                    )
                case other:
                    raise ValueError(f"{file} holds credentials of type {other!r}")
        except (ProviderError, ValueError, KeyError, OSError) as error:
            raise AuthRejected(
                f"no Google Cloud credentials: {error}",
                hint="set GOOGLE_APPLICATION_CREDENTIALS to a service account's file, or run"
                " `gcloud auth application-default login`",
            ) from error

    async def _exchange(self, place: str, **form: str) -> GoogleToken:
        return _token(
            await fetch_json(
                self._client, "POST", place, body=urlencode(form).encode(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            )
        )  # fmt: skip

    async def _machine(self) -> GoogleToken:
        host = self._environ.get("GCE_METADATA_HOST") or _MACHINE
        path = "computeMetadata/v1/instance/service-accounts/default/token"
        return _token(
            await fetch_json(
                self._client, "GET", f"http://{host}/{path}", headers={"Metadata-Flavor": "Google"}
            )
        )


def _token(found: dict[str, Any]) -> GoogleToken:
    return GoogleToken(str(found["access_token"]), time.time() + float(found["expires_in"]))


def _claim(account: dict[str, Any]) -> str:
    """The service account's word that it asks for a token, signed by its key."""
    from cryptography.hazmat.primitives import hashes, serialization  # slow to import
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    now = int(time.time())
    head = {"alg": "RS256", "typ": "JWT", "kid": account.get("private_key_id")}
    claim = {
        "iss": account["client_email"], "scope": _SCOPE,
        "aud": _TOKENS, "iat": now, "exp": now + 3600,
    }  # fmt: skip
    said = b".".join(_unpadded(dumps(part)) for part in (head, claim))
    key = serialization.load_pem_private_key(str(account["private_key"]).encode(), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("the service account's key is no RSA key")
    signature = key.sign(said, padding.PKCS1v15(), hashes.SHA256())
    return (said + b"." + _unpadded(signature)).decode()


def _unpadded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
