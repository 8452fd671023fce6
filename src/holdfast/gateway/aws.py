"""Amazon's credentials and signatures (SigV4), for Bedrock.

Credentials come from where Amazon's own tools look: the environment, a web identity (EKS), the
profile in the files of `aws configure` (keys, a role that it assumes, single sign-on, a program
named there), the container's and the machine's own service. Those that expire are fetched anew a
few minutes before. Signing in is `aws sso login`'s: the token that it leaves is used, and renewed
in its file as Amazon's own tools do, so that they and we go on from the same one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.errors import AuthRejected, ProviderError
from holdfast.gateway.cloud_settings import (
    AwsKeys,
    aws_home,
    aws_profile,
    aws_region,
    aws_source,
    profile_source,
)
from holdfast.gateway.credential_source import fetch, fetch_json, when
from holdfast.gateway.http_client import HttpClient

_EARLY = 300.0
"""Seconds before their end that credentials are fetched anew."""
_CONTAINER = "http://169.254.170.2"
_MACHINE = "http://169.254.169.254"
_PLACES = {
    "Environment": "environment", "EcsContainer": "container", "Ec2InstanceMetadata": "machine",
}  # fmt: skip
"""`credential_source` of a profile, in our words."""
_RENEW = 900.0
"""Seconds before its end that a sign-in is renewed, as Amazon's own tools do."""
_SIGN_IN = "run `aws sso login`"


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
        source = aws_source(self._environ)
        try:
            return await self._by(source, aws_profile(self._environ))
        except (ProviderError, ValueError, KeyError, OSError) as error:
            raise AuthRejected(
                f"no AWS credentials by {source or 'any way'}: {error}",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or"
                " AWS_BEARER_TOKEN_BEDROCK",
            ) from error

    async def _by(
        self, source: str | None, profile: Mapping[str, str], behind: tuple[str, ...] = ()
    ) -> AwsKeys:
        environ = self._environ
        match source:
            case "environment":
                return AwsKeys(
                    environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"],
                    environ.get("AWS_SESSION_TOKEN"),
                )  # fmt: skip
            case "web identity":
                return await self._web_identity()
            case "role":
                return await self._role(profile, behind)
            case "single sign-on":
                return await self._single_sign_on(profile)
            case "profile":
                return AwsKeys(
                    profile["aws_access_key_id"], profile["aws_secret_access_key"],
                    profile.get("aws_session_token"),
                )  # fmt: skip
            case "process":
                return await _from_process(profile["credential_process"])
            case "container":
                return await self._container()
            case "machine":
                return await self._machine()
            case _:
                raise ValueError("there are none")

    async def _web_identity(self) -> AwsKeys:
        environ = self._environ
        return await self._assumed(
            {
                "Action": "AssumeRoleWithWebIdentity", "RoleArn": environ["AWS_ROLE_ARN"],
                "WebIdentityToken": _secret_in(environ["AWS_WEB_IDENTITY_TOKEN_FILE"]),
                "RoleSessionName": environ.get("AWS_ROLE_SESSION_NAME") or "holdfast",
            }
        )  # fmt: skip

    async def _role(self, profile: Mapping[str, str], behind: tuple[str, ...]) -> AwsKeys:
        """The role that a profile assumes, with the credentials of another or of its place."""
        if profile.get("mfa_serial"):
            raise ValueError("its role asks for a code (mfa_serial), which nobody here can type")
        named = profile.get("source_profile")
        if named is None:
            source = _PLACES.get(profile["credential_source"], profile["credential_source"])
            base = await self._by(source, {})
        elif named in behind:
            raise ValueError(f"profile {named!r} is its own source")
        else:
            other = aws_profile(self._environ, named)
            way = profile_source(other)
            if way == "role" and other.get("source_profile") == named:
                way = "profile"  # a profile may assume its role with its own keys
            base = await self._by(way, other, (*behind, named))
        form = {
            "Action": "AssumeRole", "RoleArn": profile["role_arn"],
            "RoleSessionName": profile.get("role_session_name") or "holdfast",
        }  # fmt: skip
        if outer := profile.get("external_id"):
            form["ExternalId"] = outer
        if lasting := profile.get("duration_seconds"):
            form["DurationSeconds"] = lasting
        return await self._assumed(form, base)

    async def _assumed(self, form: dict[str, str], keys: AwsKeys | None = None) -> AwsKeys:
        region = aws_region(self._environ) or "us-east-1"
        place = self._environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        body = urlencode({**form, "Version": "2011-06-15"}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if keys is not None:
            headers |= sign(keys, region, "POST", place, body, service="sts")
        said = await fetch(self._client, "POST", place, body=body, headers=headers)
        return AwsKeys(
            _tag(said, "AccessKeyId"), _tag(said, "SecretAccessKey"),
            _tag(said, "SessionToken"), when(_tag(said, "Expiration")),
        )  # fmt: skip

    async def _single_sign_on(self, profile: Mapping[str, str]) -> AwsKeys:
        region, start = profile["sso_region"], profile["sso_start_url"]
        named = hashlib.sha1((profile.get("sso_session") or start).encode()).hexdigest()  # noqa: S324
        file = aws_home(self._environ) / "sso/cache" / f"{named}.json"
        token = await self._signed_in(file, profile)
        place = self._environ.get("AWS_ENDPOINT_URL_SSO") or (
            f"https://portal.sso.{region}.amazonaws.com"
        )
        asked = {"role_name": profile["sso_role_name"], "account_id": profile["sso_account_id"]}
        said = await fetch_json(
            self._client, "GET", f"{place}/federation/credentials?{urlencode(asked)}",
            headers={"x-amz-sso_bearer_token": token},
        )  # fmt: skip
        held: dict[str, Any] = said["roleCredentials"]
        return AwsKeys(
            held["accessKeyId"], held["secretAccessKey"], held["sessionToken"],
            float(held["expiration"]) / 1000,
        )  # fmt: skip

    async def _signed_in(self, file: Path, profile: Mapping[str, str]) -> str:
        """The token that signing in has left, renewed where it is about to end."""
        try:
            held: dict[str, Any] = json.loads(_secret_in(str(file)))
        except FileNotFoundError:
            raise ValueError(f"nobody has signed in; {_SIGN_IN}") from None
        left = when(held["expiresAt"]) - time.time()
        renewable = all(held.get(name) for name in ("refreshToken", "clientId", "clientSecret"))
        registered = when(held.get("registrationExpiresAt") or "1970-01-01") > time.time()
        if left < _RENEW and profile.get("sso_session") and renewable and registered:
            held = await self._renewed(held, profile["sso_region"])
            _replace(file, json.dumps(held))
        elif left <= 0:
            raise ValueError(f"the sign-in has expired; {_SIGN_IN}")
        return str(held["accessToken"])

    async def _renewed(self, held: dict[str, Any], region: str) -> dict[str, Any]:
        place = self._environ.get("AWS_ENDPOINT_URL_SSO_OIDC") or (
            f"https://oidc.{region}.amazonaws.com"
        )
        asked = {name: held[name] for name in ("clientId", "clientSecret", "refreshToken")}
        said = await fetch_json(
            self._client, "POST", f"{place}/token", headers={"Content-Type": "application/json"},
            body=json.dumps({"grantType": "refresh_token", **asked}).encode(),
        )  # fmt: skip
        ends = datetime.fromtimestamp(time.time() + float(said["expiresIn"]), UTC)
        held = {
            **held,
            "accessToken": said["accessToken"],
            "expiresAt": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        }
        return held | ({"refreshToken": said["refreshToken"]} if said.get("refreshToken") else {})

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


def _replace(file: Path, text: str) -> None:
    """Change a file that others read meanwhile, for its owner's eyes alone."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink()
        raise


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
