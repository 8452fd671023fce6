"""A recorded call's messages in canonical form, whatever format it was made in."""

from __future__ import annotations

import json
from typing import Any, cast

from holdfast.gateway.canonical_json import completion_from_text
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.json_fields import WireError, fields
from holdfast.gateway.messages import Origin
from holdfast.gateway.reply import Completion
from holdfast.gateway.request import Request
from holdfast.records.calls import Call


def recorded_request(call: Call) -> Request | None:
    """What was asked, redacted; None where content is not kept or can't be read."""
    if call.start.prompt is None:
        return None
    if call.start.format not in FORMATS:
        return _request_from_text(call.start.prompt)
    try:
        body = fields(json.loads(call.start.prompt))
        return FORMATS[call.start.format].decode_request(body)
    except (WireError, ValueError):
        return None  # a request that only its own provider understands


def recorded_reply(call: Call) -> Completion | None:
    """What was answered, redacted; None where there is nothing to show."""
    if call.end is None or call.end.reply is None:
        return None
    try:
        body = fields(json.loads(call.end.reply))
        if "parts" in body:
            return completion_from_text(call.end.reply)
        return FORMATS[cast(Origin, call.start.format)].decode_reply(body)
    except (WireError, ValueError):
        return None


def _request_from_text(text: str) -> Request:
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(Request)
    return adapter.validate_json(text)
