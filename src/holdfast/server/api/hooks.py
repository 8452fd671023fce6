"""Webhooks: what others post to a run's own URL.

The path is the permission: its token can't be guessed, and who has it needs no other. The body
is handed to the run as it is meant: JSON as the value, a form as its fields, else as text.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import UsageError, WrongMediaType
from holdfast.runtime.client import receive_webhook
from holdfast.server.api.workflows import checked_key
from holdfast.server.replies import Json
from holdfast.server.schemas import ERRORS, Alive
from holdfast.server.strict_json import parse

router = APIRouter(tags=["webhooks"], responses=ERRORS)

ID_HEADERS = ("idempotency-key", "webhook-id")
"""The second is what the Standard Webhooks specification names."""
MAX_FIELDS = 1000
ANYTHING: dict[str, Any] = {
    "requestBody": {
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
        }
    }
}


@router.post("/hooks/{token}", status_code=202, response_model=Alive, openapi_extra=ANYTHING)
async def webhook(request: Request, token: str) -> Response:
    """Hand the body to the run that waits for it. Needs no other token than the path's."""
    payload = payload_of(request.headers.get("content-type", ""), await request.body())
    given = next((found for name in ID_HEADERS if (found := request.headers.get(name))), None)
    key = checked_key(given)
    # Senders choose ids for themselves: those of one hook must not silence another's.
    mine = hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=12).hexdigest()
    await receive_webhook(token, payload, id=None if key is None else f"hook:{mine}:{key}")
    return Json({"ok": True}, 202)


def payload_of(content_type: str, body: bytes) -> Any:
    """What a body says."""
    if not body:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return parse(body)
    if kind.startswith("multipart/"):
        raise WrongMediaType("a webhook takes JSON, a plain form or text, no multipart form")
    try:
        text = body.decode("utf-8")
        if kind != "application/x-www-form-urlencoded":
            return text
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise UsageError("the body is no UTF-8 text, or has too many fields") from error
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
