"""Canonical data as plain JSON, and answers back from it.

What has its default value is left out, so that the text is short and two equal requests have the
same text: it is what requests are hashed by.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any, cast

from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.json_fields import WireError, fields
from holdfast.gateway.messages import (
    Citation,
    Message,
    Origin,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Request,
    TextPart,
    ToolCallPart,
)
from holdfast.gateway.reply import Completion, Usage
from holdfast.records.calls import Call

_REPLY_PARTS: dict[str, Callable[..., ReplyPart]] = {
    "text": TextPart,
    "tool_call": ToolCallPart,
    "reasoning": ReasoningPart,
    "refusal": RefusalPart,
}


def request_text(request: Request) -> str:
    """A request as compact JSON; streaming or not is no difference in what is asked."""
    if _rest(request) == _SAID_NO_MORE:
        return (
            f'{{"messages":{_text(request.messages, True)},'
            f'"model":{encode_basestring(request.model)}}}'
        )
    return _text(replace(request, stream=False) if request.stream else request, True)


def completion_text(completion: Completion) -> str:
    """An answer as compact JSON."""
    text = (
        f'{{"parts":{_text(completion.parts, False)}'
        f',"finish":{encode_basestring(completion.finish)}'
        f',"model":{encode_basestring(completion.model)}'
    )
    if completion.usage is not None:
        text += f',"usage":{_text(completion.usage, False)}'
    if completion.id is not None:
        text += f',"id":{_text(completion.id, False)}'
    if completion.stop_sequence is not None:
        text += f',"stop_sequence":{_text(completion.stop_sequence, False)}'
    return text + "}"


def completion_from_text(text: str | bytes) -> Completion:
    """An answer back from its JSON."""
    data = json.loads(text)
    parts: list[dict[str, Any]] = data.pop("parts", [])
    usage: dict[str, Any] | None = data.pop("usage", None)
    return Completion(
        parts=tuple(_reply_part(part) for part in parts),
        usage=None if usage is None else Usage(**usage),
        **data,
    )


def _reply_part(part: dict[str, Any]) -> ReplyPart:
    if cited := part.get("citations"):
        part = {**part, "citations": tuple(Citation(**one) for one in cited)}
    return _REPLY_PARTS[part.get("type", "text")](**part)


_Field = tuple[str, Any]
"""The text before a value, and the value that is left out."""


def _text(value: Any, ordered: bool) -> str:
    """Exactly what `json.dumps` would write, without its making an encoder for each text.

    What is said in most calls, a message of one text, is written without looking at its fields.
    """
    kind = cast("Any", type(value))
    if kind is Message and ordered:
        return f'{{"parts":{_text(value.parts, ordered)},"role":{encode_basestring(value.role)}}}'
    if kind is TextPart and value.cache is None and not value.citations:
        return f'{{"text":{encode_basestring(value.text)},"type":"text"}}'
    if kind is tuple:
        if len(value) == 1:
            return f"[{_text(value[0], ordered)}]"
        return f"[{','.join([_text(one, ordered) for one in value])}]"
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return str(value)
    if not hasattr(kind, "__dataclass_fields__"):
        return (_encode_sorted if ordered else _encode)(value)
    get, fields = _fields(kind, ordered)
    said = [
        before + (encode_basestring(one) if type(one) is str else _text(one, ordered))
        for one, (before, default) in zip(get(value), fields, strict=True)
        if one is not default and one != default
    ]
    return f"{{{','.join(said)}}}"


@cache
def _fields(cls: type[Any], ordered: bool) -> tuple[attrgetter[tuple[Any, ...]], list[_Field]]:
    """The fields with their defaults; what must be said has a default that nothing equals."""
    found: dict[str, _Field] = {}
    for field in dataclasses.fields(cls):
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.name == "type":
            default = dataclasses.MISSING
        found[field.name] = f'"{field.name}":', default
    names = sorted(found) if ordered else list(found)
    return attrgetter(*names), [found[name] for name in names]


def _slim(value: Any) -> dict[str, Any]:
    """A dataclass within a list or dict, without what has its default."""
    get, fields = _fields(cast("type[Any]", type(value)), False)
    return {
        before[1:-2]: one
        for one, (before, default) in zip(get(value), fields, strict=True)
        if one != default
    }


_compact: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "default": _slim}
_encode = json.JSONEncoder(**_compact).encode
_encode_sorted = json.JSONEncoder(**_compact, sort_keys=True).encode
_MORE = [
    field.name
    for field in dataclasses.fields(Request)
    if field.name not in ("model", "messages", "stream")
]
_rest = attrgetter(*_MORE)
_SAID_NO_MORE = _rest(Request("", ()))


def recorded_request(call: Call) -> Request | None:
    """What was asked, redacted; None where content is not kept or can't be read."""
    if call.start.prompt is None:
        return None
    if call.start.format == "holdfast":
        return _request_from_text(call.start.prompt)
    if call.start.format not in FORMATS:
        return None  # an embedding, or a count of tokens: no conversation
    try:
        body = fields(json.loads(call.start.prompt))
        return FORMATS[cast(Origin, call.start.format)].decode_request(body)
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
        if call.start.format not in FORMATS:
            return None
        return FORMATS[cast(Origin, call.start.format)].decode_reply(body)
    except (WireError, ValueError):
        return None


def _request_from_text(text: str) -> Request:
    from pydantic import TypeAdapter  # slow to import, and not needed by all

    adapter: TypeAdapter[Any] = TypeAdapter(Request)
    return adapter.validate_json(text)
