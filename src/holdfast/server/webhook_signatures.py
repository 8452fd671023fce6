"""Signatures of webhooks that others send: Standard Webhooks, GitHub, Stripe, Slack.

Pure: headers, body and the time in; what was delivered out, or BadSignature. A delivery has an id
of its sender's, by which a repetition is known; where the sender signs the time, what is older than
five minutes is refused, so that nobody who has seen one can send it again later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from holdfast.errors import BadSignature, ConfigError, UsageError

WebhookKind = Literal["standard", "github", "stripe", "slack"]
TOLERANCE_SECONDS = 300.0
MOST_SIGNATURES = 20
"""Looked at in one header: senders give one or two."""


@dataclass(frozen=True)
class WebhookSource:
    """Somebody whose webhooks are taken: the `[server.webhooks.NAME]` section."""

    kind: WebhookKind
    secret: str = field(default="", repr=False)
    secret_env: str = ""
    """The variable that has the secret: keep it out of the file."""
    old_secret_env: str = ""
    """The variable with the secret before, while the sender still signs with it."""

    def __post_init__(self) -> None:
        if bool(self.secret) == bool(self.secret_env):
            raise ConfigError("a webhook has either secret or secret_env")

    def secrets(self) -> list[str]:
        """The secrets that signatures may be made with."""
        found = [self.secret] if self.secret else []
        named = (self.secret_env, self.old_secret_env)
        found += [os.environ[name] for name in named if name and os.environ.get(name)]
        if not found:
            raise ConfigError(f"the variable {self.secret_env} is not set")
        return found


class Delivery(NamedTuple):
    """What is known of a webhook's request before its body is read."""

    id: str | None
    type: str | None


def verify(source: WebhookSource, headers: Mapping[str, str], body: bytes, now: float) -> Delivery:
    """Raises BadSignature unless the body is what the sender has signed, and lately."""
    check = _CHECKS[source.kind]
    for secret in source.secrets():
        found = check(secret, headers, body, now)
        if found is not None:
            return found
    raise BadSignature(
        "the signature does not fit the body", hint="is it the secret that the sender signs with?"
    )


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery | None:
    id, at = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
    given = _header(headers, "webhook-signature")
    _check_time(at, now)
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ConfigError("the webhook's secret is not base64, as whsec_… is") from error
    expected = base64.b64encode(_mac(key, f"{id}.{at}.".encode() + body)).decode()
    signatures = given.split()[:MOST_SIGNATURES]
    fits = any(_same(each, f"v1,{expected}") for each in signatures)
    return Delivery(id, None) if fits else None


def _github(secret: str, headers: Mapping[str, str], body: bytes, _now: float) -> Delivery | None:
    given = _header(headers, "x-hub-signature-256")
    if not _same(given, f"sha256={_mac(secret.encode(), body).hex()}"):
        return None
    return Delivery(_header(headers, "x-github-delivery"), _header(headers, "x-github-event"))


def _stripe(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery | None:
    pairs = [part.partition("=") for part in _header(headers, "stripe-signature").split(",")]
    at = next((value for name, _, value in pairs if name.strip() == "t"), "")
    _check_time(at, now)
    expected = _mac(secret.encode(), f"{at}.".encode() + body).hex()
    given = [value for name, _, value in pairs if name.strip() == "v1"][:MOST_SIGNATURES]
    return Delivery(None, None) if any(_same(each, expected) for each in given) else None


def _slack(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery | None:
    at = _header(headers, "x-slack-request-timestamp")
    given = _header(headers, "x-slack-signature")
    _check_time(at, now)
    expected = f"v0={_mac(secret.encode(), f'v0:{at}:'.encode() + body).hex()}"
    # Slack sends one request again with another timestamp; its payload says which it is.
    return Delivery(None, None) if _same(given, expected) else None


_CHECKS = {"standard": _standard, "github": _github, "stripe": _stripe, "slack": _slack}


def described(kind: WebhookKind, delivery: Delivery, payload: Any, body: bytes) -> Delivery:
    """The delivery's id and type, from its payload where the headers do not say."""
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    inner = fields.get("event")
    type = delivery.type
    if type is None and kind == "slack" and isinstance(inner, dict):
        type = cast("dict[str, Any]", inner).get("type")
    type = type or fields.get("type") or fields.get("command") or "received"
    id = delivery.id or fields.get("event_id" if kind == "slack" else "id")
    if not isinstance(type, str) or not 0 < len(type) <= 200 or not type.isprintable():
        raise UsageError("the webhook's type is no text of up to 200 characters")
    if not isinstance(id, str) or not 0 < len(id) <= 255:
        id = hashlib.sha256(body).hexdigest()
    return Delivery(id, type)


def _header(headers: Mapping[str, str], name: str) -> str:
    found = headers.get(name, "")
    if not found:
        raise BadSignature(f"the request has no {name} header")
    return found


def _check_time(text: str, now: float) -> None:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise BadSignature("the request's timestamp is no number of seconds")
    if abs(now - int(text)) > TOLERANCE_SECONDS:
        raise BadSignature(
            "the request was signed more than five minutes ago, or is yet to be",
            hint="a repetition of an old one, or one of the clocks is wrong",
        )


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
