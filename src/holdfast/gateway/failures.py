"""A provider's bad answer as one of our errors."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from typing import Any

from holdfast.errors import (
    AuthRejected,
    BadReply,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from holdfast.gateway.formats.base import Failure, Format


def from_response(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, format: Format
) -> ProviderError:
    """The error for a reply with an error status; its body is the provider's word for it."""
    parsed: Any = None
    try:
        parsed = json.loads(body)
    except ValueError:
        pass
    failure = format.decode_failure(parsed) or Failure(_plain(headers, body))
    return classify(provider, status, failure, retry_after=retry_after(headers))


def classify(
    provider: str, status: int | None, failure: Failure, *, retry_after: float | None = None
) -> ProviderError:
    """Status and words to the error that says what can be done about it."""
    words = failure.message.strip()[:1000] or "no reason given"
    message = f"{provider}: {words}"
    code = failure.code
    if status is None:
        status = _status_of(failure)
    if 300 <= status < 400:
        return BadReply(
            f"{provider} sent us elsewhere ({status}); redirects are not followed", status=status
        )
    kind: type[ProviderError]
    if status == 429:
        kind = RateLimited
    elif status in (401, 403):
        kind = AuthRejected
    elif status in (408, 504):
        kind = ProviderTimeout
    elif status >= 500:
        kind = ProviderUnavailable
    elif status == 404:
        kind = NotServed
    else:
        kind = RequestRejected
    return kind(message, status=status, code=code, retry_after=retry_after)


class NotServed(RequestRejected):
    """The provider does not know the model; another may."""

    http_status = 404
    falls_back = True


def _status_of(failure: Failure) -> int:
    words = f"{failure.code or ''} {failure.type or ''}"
    if "rate" in words:
        return 429
    if "overload" in words:
        return 529
    return 400 if "invalid" in words else 500


def _plain(headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "")
    if "html" in kind or not body.strip():
        return "an error without a readable reason"
    return body[:500].decode("utf-8", "replace")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds the provider asks us to wait; None if it says nothing readable."""
    precise = headers.get("retry-after-ms")
    if precise is not None:
        wait = _number(precise)
        return None if wait is None else wait / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    wait = _number(value)
    if wait is not None:
        return wait
    moment = email.utils.parsedate_tz(value)
    if moment is None:
        return None
    try:
        return max(email.utils.mktime_tz(moment) - (time.time() if now is None else now), 0.0)
    except (OverflowError, ValueError):
        return None


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
