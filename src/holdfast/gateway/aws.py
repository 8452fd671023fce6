"""Amazon's credentials and signatures (SigV4), for Bedrock.

Credentials come from where Amazon's own tools look, in their order: the environment, a web
identity (EKS), the files of `aws configure`, a program named there, the container's and the
machine's own service. Those that expire are fetched anew a few minutes before.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.errors import AuthRejected, ProviderError
from holdfast.gateway.cloud_settings import AwsKeys, aws_profile, aws_region, aws_source
from holdfast.gateway.credential_source import fetch, fetch_json, when
from holdfast.gateway.http_client import HttpClient

_EARLY = 300.0
"""Seconds before their end that credentials are fetched anew."""
_CONTAINER = "http://169.254.170.2"
_MACHINE = "http://169.254.169.254"


def sign(
    keys: AwsKeys,
    region: str,
    method: str,
    url: str,
    body: bytes,
    *,
    service: str = "bedrock",
    now: float | None = None,
) -> dict[str, str]:
    """The headers that sign a request: of its method, address, body and moment."""
    moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    stamp, day = moment.strftime("%Y%m%dT%H%M%SZ"), moment.strftime("%Y%m%d")
    parts = urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    signed = {"host": parts.netloc, "x-amz-date": stamp}
    if keys.token:
        signed["x-amz-security-token"] = keys.token
    names = ";".join(signed)
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~"),  # what is encoded already is encoded again
            "&".join(sorted(parts.query.split("&"))) if parts.query else "",
            *(f"{name}:{value}" for name, value in signed.items()),
            "",
            names,
            digest,
        )
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    key = f"AWS4{keys.secret}".encode()
    for piece in (day, region, service, "aws4_request"):
        key = hmac.digest(key, piece.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers = {
        "X-Amz-Date": stamp,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope},"
        f" SignedHeaders={names}, Signature={signature}",
    }
    if keys.token:
        headers["X-Amz-Security-Token"] = keys.token
    return headers


class AwsCredentials:
    """Finds credentials, and keeps them until they expire."""

    def __init__(self, environ: Mapping[str, str], client: HttpClient) -> None:
        self._environ, self._client = environ, client
        self._kept: AwsKeys | None = None
        self._lock = asyncio.Lock()

    async def keys(self) -> AwsKeys:
        """The keys to sign with; raises AuthRejected if there are none."""
        async with self._lock:
            kept = self._kept
            if kept is None or (kept.expires is not None and kept.expires - _EARLY < time.time()):
                kept = self._kept = await self._find()
            return kept

    async def _find(self) -> AwsKeys:
        environ, source = self._environ, aws_source(self._environ)
        try:
            match source:
                case "environment":
                    return AwsKeys(
                        environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"],
                        environ.get("AWS_SESSION_TOKEN"),
                    )  # fmt: skip
                case "web identity":
                    return await self._web_identity()
                case "profile":
                    found = aws_profile(environ)
                    return AwsKeys(
                        found["aws_access_key_id"], found["aws_secret_access_key"],
                        found.get("aws_session_token"),
                    )  # fmt: skip
                case "process":
                    return await _from_process(aws_profile(environ)["credential_process"])
                case "container":
                    return await self._container()
                case "machine":
                    return await self._machine()
                case _:
                    raise ValueError("there are none")
        except (ProviderError, ValueError, KeyError, OSError) as error:
            raise AuthRejected(
                f"no AWS credentials by {source or 'any way'}: {error}",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or"
                " AWS_BEARER_TOKEN_BEDROCK",
            ) from error

    async def _web_identity(self) -> AwsKeys:
        environ = self._environ
        token = _secret_in(environ["AWS_WEB_IDENTITY_TOKEN_FILE"])
        region = aws_region(environ) or "us-east-1"
        place = environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        form = urlencode({
            "Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15",
            "RoleArn": environ["AWS_ROLE_ARN"], "WebIdentityToken": token,
            "RoleSessionName": environ.get("AWS_ROLE_SESSION_NAME") or "holdfast",
        })  # fmt: skip
        said = await fetch(
            self._client, "POST", place, body=form.encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        return AwsKeys(
            _tag(said, "AccessKeyId"), _tag(said, "SecretAccessKey"),
            _tag(said, "SessionToken"), when(_tag(said, "Expiration")),
        )  # fmt: skip

    async def _container(self) -> AwsKeys:
        environ = self._environ
        path = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = f"{_CONTAINER}{path}" if path else environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        secret = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if named := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            secret = _secret_in(named)
        headers = {"Authorization": secret} if secret else {}
        return _from_service(await fetch_json(self._client, "GET", url, headers=headers))

    async def _machine(self) -> AwsKeys:
        base = (self._environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _MACHINE).rstrip("/")
        token = await fetch(
            self._client, "PUT", f"{base}/latest/api/token",
            headers={"X-aws-ec2-metadata-token-ttl-seconds": "21600"},
        )  # fmt: skip
        headers = {"X-aws-ec2-metadata-token": token.strip()}
        place = f"{base}/latest/meta-data/iam/security-credentials/"
        role = (await fetch(self._client, "GET", place, headers=headers)).strip().split("\n")[0]
        return _from_service(await fetch_json(self._client, "GET", place + role, headers=headers))


def _secret_in(file: str) -> str:
    return Path(file).read_text(encoding="utf-8").strip()


async def _from_process(command: str) -> AwsKeys:
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise ValueError(f"credential_process failed with {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    expiry = found.get("Expiration")
    return AwsKeys(
        found["AccessKeyId"], found["SecretAccessKey"], found.get("SessionToken"),
        when(expiry) if expiry else None,
    )  # fmt: skip


def _from_service(found: dict[str, Any]) -> AwsKeys:
    expiry = found.get("Expiration")
    return AwsKeys(
        found["AccessKeyId"], found["SecretAccessKey"], found.get("Token"),
        when(expiry) if expiry else None,
    )  # fmt: skip


def _tag(text: str, name: str) -> str:
    """The text of an element of STS's XML, whose values hold no markup."""
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    if found is None:
        raise ValueError(f"the answer holds no {name}")
    return found[1].replace("&amp;", "&")
