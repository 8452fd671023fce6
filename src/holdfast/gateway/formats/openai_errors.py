"""Errors as OpenAI's two formats word them."""

from __future__ import annotations

from typing import Any, cast

from holdfast.gateway.formats.base import Failure
from holdfast.gateway.formats.json_fields import Json
from holdfast.gateway.formats.sse import event

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def encode(status: int, kind: str, message: str) -> Json:
    error = {"message": message, "type": _type(status), "param": None, "code": kind}
    return {"error": error}


def decode(body: Any) -> Failure | None:
    """The error in a body: OpenAI's, and the many shapes of those who follow it."""
    if not isinstance(body, dict):
        return None
    found = cast(Json, body)
    error = found.get("error")
    if isinstance(error, str):
        return Failure(error)
    if isinstance(error, dict):
        inner = cast(Json, error)
        code = inner.get("code") or inner.get("type")
        return Failure(
            str(inner.get("message") or inner),
            None if code is None else str(code),
            None if inner.get("type") is None else str(inner["type"]),
        )
    if found.get("object") == "error" or "message" in found:  # vLLM, Mistral
        return Failure(str(found.get("message")), str(found.get("type") or found.get("code") or ""))
    if "detail" in found:  # FastAPI servers
        return Failure(str(found["detail"]))
    return None


def stream_chat(status: int, kind: str, message: str) -> bytes:
    return event(encode(status, kind, message))


def stream_responses(status: int, kind: str, message: str) -> bytes:
    # `error` twice: the event as documented, and the object OpenAI's own clients look for.
    data = {
        "type": "error",
        "code": kind,
        "message": message,
        "param": None,
        "error": encode(status, kind, message)["error"],
    }
    return event(data, "error")


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
