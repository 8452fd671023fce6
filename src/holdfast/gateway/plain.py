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
from operator import attrgetter
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

_REPLY_PARTS: dict[str, Callable[..., ReplyPart]] = {
    "text": TextPart,
    "tool_call": ToolCallPart,
    "reasoning": ReasoningPart,
    "refusal": RefusalPart,
}


def request_text(request: Request) -> str:
    """A request as compact JSON; streaming or not is no difference in what is asked."""
    return _encode_sorted(request if not request.stream else replace(request, stream=False))


def completion_text(completion: Completion) -> str:
    """An answer as compact JSON."""
    return _encode(completion)


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


def _slim(value: Any) -> dict[str, Any]:
    """A dataclass as a dict, without what has its default."""
    get, names, defaults = _fields(cast("type[Any]", type(value)))
    return {
        name: one
        for name, one, default in zip(names, get(value), defaults, strict=True)
        if one != default
    }


@cache
def _fields(cls: type[Any]) -> tuple[attrgetter[tuple[Any, ...]], list[str], list[Any]]:
    """The fields with their defaults; what must be said has a default that nothing equals."""
    names: list[str] = []
    defaults: list[Any] = []
    for field in dataclasses.fields(cls):
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        names.append(field.name)
        defaults.append(dataclasses.MISSING if field.name == "type" else default)
    return attrgetter(*names), names, defaults


# The encoder walks tuples, lists and dicts by itself, in C; it asks only for what it can't.
_compact: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "default": _slim}
_encode = json.JSONEncoder(**_compact).encode
_encode_sorted = json.JSONEncoder(**_compact, sort_keys=True).encode
