"""What the server answers with: JSON that every client can read, and errors in one form.

Every error is `{"error": {"kind", "message", "hint"}}` with the status its class names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.responses import Response

from holdfast.errors import (
    HoldfastError,
    InternalError,
    NotFound,
    ProviderError,
    TooManyRequests,
    UsageError,
    WrongMethod,
)


class Json(Response):
    """A value as JSON; what JSON can't carry (NaN, half a character) is replaced, not sent."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encoded(content)


def encoded(value: Any) -> bytes:
    """A value as JSON, in UTF-8, on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair is no character; stored text may hold one all the same.
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in cast("list[Any]", value)]
    return value


def error_body(error: HoldfastError) -> dict[str, Any]:
    """An error as clients get it."""
    body = {"kind": error.kind, "message": error.message or error.kind, "hint": error.hint}
    return {"error": body}


def error_reply(error: HoldfastError, headers: Mapping[str, str] | None = None) -> Json:
    """The answer that an error stands for."""
    return Json(error_body(error), error.http_status, error_headers(error, headers))


def error_headers(error: HoldfastError, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """What an error says beside its body."""
    found = dict(headers or {})
    wait = error.retry_after if isinstance(error, TooManyRequests | ProviderError) else None
    if wait is not None:
        found["retry-after"] = str(max(1, math.ceil(wait)))
    if error.http_status == 401:
        found["www-authenticate"] = 'Bearer realm="holdfast"'
    return found


def unexpected(error: Exception) -> HoldfastError:
    """Our error for a mistake of ours. What it was is in the log."""
    return InternalError(
        type(error).__name__, hint="this is a bug in Holdfast: the server's log says more"
    )


def from_http(error: HTTPException, method: str, path: str) -> HoldfastError:
    """Our error for what the framework found wrong: no such path, no such method, a bad form."""
    if error.status_code == 404:
        is_api = path == "/api" or path.startswith("/api/")
        hint = "/api/openapi.json lists what there is" if is_api else None
        return NotFound(f"there is nothing at {path}", hint=hint)
    if error.status_code == 405:
        return WrongMethod(f"{path} does not take {method}")
    return UsageError(str(error.detail))
