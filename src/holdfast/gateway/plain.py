"""Canonical data as plain JSON, and answers back from it.

What has its default value is left out, so that the text is short and two equal requests have the
same text: it is what requests are hashed by.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from holdfast.gateway.messages import (
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    TextPart,
    ToolCallPart,
)
from holdfast.gateway.reply import Completion, Usage
from holdfast.gateway.request import Request

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
_REPLY_PARTS: dict[str, Callable[..., ReplyPart]] = {
    "text": TextPart,
    "tool_call": ToolCallPart,
    "reasoning": ReasoningPart,
    "refusal": RefusalPart,
}


def request_text(request: Request) -> str:
    """A request as compact JSON; streaming or not is no difference in what is asked."""
    data = plain(request)
    data.pop("stream", None)
    return _encode_sorted(data)


def completion_text(completion: Completion) -> str:
    """An answer as compact JSON."""
    return _encode(plain(completion))


def completion_from_text(text: str | bytes) -> Completion:
    """An answer back from its JSON."""
    data = json.loads(text)
    parts: list[dict[str, Any]] = data.pop("parts", [])
    usage: dict[str, Any] | None = data.pop("usage", None)
    return Completion(
        parts=tuple(_REPLY_PARTS[part.get("type", "text")](**part) for part in parts),
        usage=None if usage is None else Usage(**usage),
        **data,
    )


def plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists, without what has its default."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, tuple | list):
        return [plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    found: dict[str, Any] = {}
    for name, default in _fields(cast("type[Any]", type(value))):
        one = getattr(value, name)
        if name == "type" or one != default:
            found[name] = plain(one)
    return found


@cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Each field with its default; a required one has a default that nothing equals."""
    found: list[tuple[str, Any]] = []
    for field in dataclasses.fields(cls):
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found.append((field.name, default))
    return tuple(found)
