"""Signed webhooks from others: what is taken, what is refused, what it becomes.

The expected signatures of GitHub, Slack and Standard Webhooks are those of their documentation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadSignature, ConfigError
from holdfast.server.webhook_signatures import WebhookSource, verify

from .conftest import TOKEN, Server, running

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def source(kind: Any, secret: str = "s3cret") -> WebhookSource:
    return WebhookSource(kind, secret)


# --- signatures ---


def test_githubs_own_example_is_taken() -> None:
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": "72d3162e",
        "x-github-event": "push",
    }
    found = verify(source("github", "It's a Secret to Everybody"), headers, b"Hello, World!", 0.0)
    assert found == ("72d3162e", "push")
    with pytest.raises(BadSignature):
        verify(source("github", "It's a Secret to Everybody"), headers, b"Hello, World?", 0.0)


def test_slacks_own_example_is_taken_and_not_for_long() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    slack = source("slack", "8f742231b10e8888abcd99yyyzzz85a5")
    verify(slack, headers, body, 1531420618.0 + 299)
    for now in (1531420618.0 + 301, 1531420618.0 - 301):
        with pytest.raises(BadSignature):
            verify(slack, headers, body, now)


def test_the_example_of_standard_webhooks_is_taken() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,old v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    body = b'{"test": 2432232314}'
    found = verify(source("standard", SECRET), headers, body, 1614265330.0)
    assert found.id == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    for change in ({"webhook-id": "msg_other"}, {"webhook-timestamp": "1614265331"}):
        with pytest.raises(BadSignature):
            verify(source("standard", SECRET), {**headers, **change}, body, 1614265330.0)


def stripe_header(body: bytes, at: int, secret: str = "s3cret") -> str:
    signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={'0' * 64},v1={signed},v0=ignored"


def test_stripes_scheme_is_taken_with_the_old_secret_while_it_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"id":"evt_1","type":"charge.succeeded"}'
    headers = {"stripe-signature": stripe_header(body, 1000, "old")}
    monkeypatch.setenv("STRIPE_SECRET", "new")
    monkeypatch.setenv("STRIPE_SECRET_BEFORE", "old")
    both = WebhookSource("stripe", "", "STRIPE_SECRET", "STRIPE_SECRET_BEFORE")
    verify(both, headers, body, 1000.0)
    with pytest.raises(BadSignature):
        verify(WebhookSource("stripe", "", "STRIPE_SECRET"), headers, body, 1000.0)
    monkeypatch.delenv("STRIPE_SECRET")
    with pytest.raises(ConfigError):
        verify(WebhookSource("stripe", "", "STRIPE_SECRET"), headers, body, 1000.0)


@pytest.mark.parametrize("kind", ["standard", "github", "stripe", "slack"])
def test_a_request_without_a_signature_is_refused(kind: str) -> None:
    odd = {
        "webhook-id": "a",
        "webhook-timestamp": "²",
        "webhook-signature": "x",
        "stripe-signature": "t=,v1",
        "x-slack-request-timestamp": "-1",
        "x-slack-signature": "é",
    }
    for headers in ({}, odd):
        with pytest.raises(BadSignature):
            verify(source(kind, SECRET), headers, b"{}", time.time())


# --- over HTTP ---


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    webhooks = {
        "github": source("github"),
        "pay": source("stripe"),
        "chat": source("slack"),
        "other": source("standard", SECRET),
    }
    async with running(tmp_path / "store.db", token=TOKEN, webhooks=webhooks) as server:
        server.headers.clear()
        yield server


def github(body: bytes, id: str = "d-1") -> dict[str, str]:
    signed = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-hub-signature-256": f"sha256={signed}",
        "x-github-delivery": id,
        "x-github-event": "push",
    }


async def test_a_webhook_becomes_an_event_once_without_a_token(server: Server) -> None:
    body = b'{"ref":"main"}'
    sent = await server.ask("POST", "/hooks/from/github", data=body, headers=github(body))
    assert (sent.status, sent.json["name"], sent.json["repeated"]) == (202, "github.push", False), (
        sent.text
    )
    again = await server.ask("POST", "/hooks/from/github", data=body, headers=github(body))
    assert again.json["repeated"] is True
    forged = {**github(body), "x-hub-signature-256": "sha256=" + "0" * 64}
    refused = await server.ask("POST", "/hooks/from/github", data=body, headers=forged)
    assert (refused.status, refused.error["kind"]) == (401, "BadSignature")
    unknown = await server.ask("POST", "/hooks/from/nobody", data=body, headers=github(body))
    assert unknown.status == 404


async def test_each_senders_types_and_ids_are_found(server: Server) -> None:
    now = int(time.time())
    body = json.dumps({"id": "evt_9", "type": "charge.succeeded"}).encode()
    paid = await server.ask(
        "POST",
        "/hooks/from/pay",
        data=body,
        headers={"stripe-signature": stripe_header(body, now), "content-type": "application/json"},
    )
    assert (paid.json["name"], paid.json["id"]) == ("pay.charge.succeeded", "pay:evt_9"), paid.text
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = base64.b64encode(hmac.new(key, f"m1.{now}.".encode() + body, hashlib.sha256).digest())
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{signed.decode()}",
        "content-type": "application/json",
    }
    other = await server.ask("POST", "/hooks/from/other", data=body, headers=headers)
    assert (other.json["name"], other.json["id"]) == ("other.charge.succeeded", "other:m1")


async def test_slack_is_answered_its_challenge(server: Server) -> None:
    now = int(time.time())
    body = b'{"type":"url_verification","challenge":"abc"}'
    signed = hmac.new(b"s3cret", f"v0:{now}:".encode() + body, hashlib.sha256).hexdigest()
    headers = {
        "x-slack-request-timestamp": str(now),
        "x-slack-signature": f"v0={signed}",
        "content-type": "application/json",
    }
    answer = await server.ask("POST", "/hooks/from/chat", data=body, headers=headers)
    assert (answer.status, answer.json) == (200, {"challenge": "abc"})
