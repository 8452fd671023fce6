"""Webhooks from others, signed: each becomes an event, which starts runs and wakes them.

`POST /hooks/from/{source}` for each `[server.webhooks.{source}]` of the configuration. The
signature is the permission. What GitHub calls a `push` becomes the event `github.push`, with the
body as its payload; the same delivery counts once.
"""

from __future__ import annotations

import time
from typing import Any, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.runtime.client import send_event
from holdfast.server.api.events import ANYTHING, payload_of
from holdfast.server.dependencies import TheSettings
from holdfast.server.replies import Json
from holdfast.server.requests import StrictRoute
from holdfast.server.schemas import ERRORS, EventSent
from holdfast.server.webhook_signatures import described, verify

router = APIRouter(tags=["webhooks"], route_class=StrictRoute, responses=ERRORS)


@router.post(
    "/hooks/from/{source}", status_code=202, response_model=EventSent, openapi_extra=ANYTHING
)
async def receive_signed_webhook(request: Request, source: str, settings: TheSettings) -> Response:
    """Take a signed webhook and send its event. Needs no token: the signature is checked."""
    configured = settings.webhooks.get(source)
    if configured is None:
        raise NotFound("no webhooks are taken from there", hint="[server.webhooks.NAME] says whose")
    body = await request.body()
    delivery = verify(configured, request.headers, body, time.time())
    payload = payload_of(request.headers.get("content-type", "application/json"), body)
    if configured.kind == "slack" and _is_handshake(payload):
        return Json({"challenge": payload["challenge"]})
    found = described(configured.kind, delivery, payload, body)
    name, event_id = f"{source}.{found.type}", f"{source}:{found.id}"
    is_new = await send_event(name, payload, id=event_id)
    return Json({"id": event_id, "name": name, "run": None, "repeated": not is_new}, 202)


def _is_handshake(payload: Any) -> bool:
    """Slack asks once, when the address is entered, for a text to be sent back."""
    if not isinstance(payload, dict):
        return False
    fields = cast("dict[str, Any]", payload)
    return fields.get("type") == "url_verification" and isinstance(fields.get("challenge"), str)
