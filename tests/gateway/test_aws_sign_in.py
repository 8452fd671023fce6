"""Roles and single sign-on, judged by botocore: asked the same, it gets the same credentials."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from holdfast.errors import AuthRejected
from holdfast.gateway.aws import AwsCredentials
from holdfast.gateway.config import Timeouts
from holdfast.gateway.http_client import HttpClient

CREDENTIALS: Any = importlib.import_module("botocore.credentials")
SESSIONS: Any = importlib.import_module("botocore.session")
TOKENS: Any = importlib.import_module("botocore.tokens")


class AmazonsSignIn:
    """Stands for single sign-on, its renewal and STS; notes what it is asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().partition("content-length:")[2].split("\r\n")[0].strip() or 0)
        body = await reader.readexactly(size)
        path = head.split(" ")[1]
        self.seen.append((path, head, body))
        if path == "/token":
            said = json.dumps({"accessToken": "new", "expiresIn": 3600, "refreshToken": "r2"})
        elif path == "/container":
            said = json.dumps({"AccessKeyId": "AC", "SecretAccessKey": "SC", "Token": "TC",
                               "Expiration": "2999-01-01T00:00:00Z"})  # fmt: skip
        elif path.startswith("/federation"):
            kept = {"accessKeyId": "AS", "secretAccessKey": "SS", "sessionToken": "TS",
                    "expiration": 32_503_680_000_000}  # fmt: skip
            said = json.dumps({"roleCredentials": kept})
        else:
            said = (
                "<AssumeRoleResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
                "<AssumeRoleResult><Credentials><AccessKeyId>AR</AccessKeyId>"
                "<SecretAccessKey>SR</SecretAccessKey><SessionToken>TR</SessionToken>"
                "<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>"
                "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"
            )
        writer.write(
            f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode()
        )
        await writer.drain()
        writer.close()


PROFILES = """
[sso-session corp]
sso_region = eu-west-1
sso_start_url = https://corp.example/start
[profile dev]
sso_session = corp
sso_account_id = 123
sso_role_name = Dev
[profile old]
sso_region = eu-west-1
sso_start_url = https://old.example/start
sso_account_id = 123
sso_role_name = Dev
[profile keys]
aws_access_key_id = A1
aws_secret_access_key = S1
[profile role]
role_arn = arn:aws:iam::1:role/r
source_profile = keys
external_id = ext
role_session_name = me
[profile signed-role]
role_arn = arn:aws:iam::1:role/r
source_profile = dev
[profile placed-role]
role_arn = arn:aws:iam::1:role/r
credential_source = EcsContainer
[profile round]
role_arn = arn:aws:iam::1:role/r
source_profile = about
[profile about]
role_arn = arn:aws:iam::1:role/r
source_profile = round
[profile code]
role_arn = arn:aws:iam::1:role/r
source_profile = keys
mfa_serial = arn:aws:iam::1:mfa/me
"""


def sign_in(home: Path, session: str, ends: str, **more: str) -> Path:
    """What `aws sso login` leaves."""
    folder = home / ".aws/sso/cache"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{hashlib.sha1(session.encode()).hexdigest()}.json"
    file.write_text(json.dumps({"accessToken": "tok", "expiresAt": ends, **more}))
    return file


async def test_roles_and_single_sign_on_are_taken_as_amazons_own_library_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    amazon = AmazonsSignIn()
    server = await asyncio.start_server(amazon.answer, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(PROFILES)
    environ = {
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    environ |= {f"AWS_ENDPOINT_URL_{name}": base for name in ("STS", "SSO", "SSO_OIDC")}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    cache = str(tmp_path / ".aws/sso/cache")  # botocore looks for it when it is imported
    monkeypatch.setattr(CREDENTIALS.SSOProvider, "_SSO_TOKEN_CACHE_DIR", cache)
    monkeypatch.setattr(TOKENS.SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", cache)
    client = HttpClient(Timeouts(), trust_env=False)

    def theirs(profile: str) -> tuple[str, str, str]:
        found = SESSIONS.Session(profile=profile).get_credentials()
        assert found is not None
        return tuple(found.get_frozen_credentials())[:3]

    async def both(profile: str, **more: str) -> list[str]:
        """The addresses asked, which are the same for both; so are the credentials."""
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        amazon.seen.clear()
        keys = await AwsCredentials({**environ, "AWS_PROFILE": profile, **more}, client).keys()
        ours = [(path, body) for path, _, body in amazon.seen]
        amazon.seen.clear()
        assert (keys.access, keys.secret, keys.token) == await asyncio.to_thread(theirs, profile)
        assert [path for path, _ in ours] == [path for path, _, _ in amazon.seen]
        for (_, body), (_, _, other) in zip(ours, amazon.seen, strict=True):
            if b"Action=" in body and b"session" not in other.lower():
                assert dict(parse_qsl(body)) == dict(parse_qsl(other))
        return [path for path, _ in ours]

    sign_in(tmp_path, "corp", "2999-01-01T00:00:00Z")
    [asked] = await both("dev")
    assert asked == "/federation/credentials?role_name=Dev&account_id=123"
    assert "x-amz-sso_bearer_token: tok" in amazon.seen[-1][1].lower()
    sign_in(tmp_path, "https://old.example/start", "2999-01-01T00:00:00Z")
    assert len(await both("old")) == 1
    assert await both("role") == ["/"]
    assert len(await both("signed-role")) == 2
    place = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{base}/container"}
    assert await both("placed-role", **place) == ["/container", "/"]
    assert "Credential=AC/" in amazon.seen[-1][1]

    # A sign-in about to end is renewed, in the file that Amazon's tools go on from.
    renewable = {"refreshToken": "r1", "clientId": "c", "clientSecret": "s",
                 "registrationExpiresAt": "2999-01-01T00:00:00Z"}  # fmt: skip
    file = sign_in(tmp_path, "corp", "2020-01-01T00:00:00Z", **renewable)
    amazon.seen.clear()
    await AwsCredentials({**environ, "AWS_PROFILE": "dev"}, client).keys()
    assert [path for path, _, _ in amazon.seen] == ["/token", asked]
    assert json.loads(amazon.seen[0][2])["refreshToken"] == "r1"
    kept = json.loads(file.read_text())
    assert (kept["accessToken"], kept["refreshToken"], kept["clientId"]) == ("new", "r2", "c")
    assert file.stat().st_mode & 0o077 == 0
    assert await both("dev") == [asked]  # theirs reads what we have written

    for profile, why in (
        ("round", "its own source"),
        ("code", "mfa_serial"),
        ("dev", "aws sso login"),
    ):
        file.unlink(missing_ok=True)
        with pytest.raises(AuthRejected, match=why):
            await AwsCredentials({**environ, "AWS_PROFILE": profile}, client).keys()
    sign_in(tmp_path, "corp", "2020-01-01T00:00:00Z")
    with pytest.raises(AuthRejected, match="expired"):
        await AwsCredentials({**environ, "AWS_PROFILE": "dev"}, client).keys()
    server.close()
    await client.close()
