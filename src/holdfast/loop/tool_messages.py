"""What the model is told of a tool: its result, its error, or why it was not called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from holdfast.gateway.messages import ImagePart, TextPart, ToolCallPart
from holdfast.loop.approvals import Decision
from holdfast.loop.results import ToolOutput, ToolRun

OUTCOME_UNKNOWN = (
    "Outcome unknown: the call was interrupted and may or may not have taken effect. "
    "It was not made again. Find out what happened before you do anything about it."
)

NOT_SHOWN = (
    "Done: it has taken effect, but its result can't be shown. "
    "Do not call it again to see the result."
)


def not_run(calls: Sequence[ToolCallPart], why: str) -> tuple[ToolRun, ...]:
    """Answers to calls that nobody made, so that the conversation can be gone on with."""
    words = (TextPart(f"not run: {why}"),)
    return tuple(ToolRun(call.id, call.name, None, words, "not_run") for call in calls)


def denied(decision: Decision) -> str:
    """A refusal in words for the model."""
    if decision.how == "timeout":
        return "Denied: nobody approved it in time. It was not done."
    why = f" {decision.note}" if decision.note else ""
    return f"Denied by {decision.by}.{why} It was not done."


def worded(error: BaseException) -> str:
    """An error in words for the model."""
    message = str(getattr(error, "message", None) or error)
    if type(error).__name__ == "StepFailed":
        return message  # it carries the original's name
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def told(value: Any, limit: int) -> ToolOutput:
    """A tool's result as the model is told: text as it is, pictures, anything else as JSON."""
    if isinstance(value, ToolOutput):
        return replace(value, content=tuple(_part(part, limit) for part in value.content))
    if isinstance(value, TextPart | ImagePart):
        return ToolOutput((value,))
    if isinstance(value, list | tuple) and value:
        parts = cast("list[Any]", value)
        if all(isinstance(part, TextPart | ImagePart) for part in parts):
            return ToolOutput(tuple(parts))
    return ToolOutput((TextPart(_cut(_text(value), limit)),))


def _part(part: TextPart | ImagePart, limit: int) -> TextPart | ImagePart:
    return replace(part, text=_cut(part.text, limit)) if isinstance(part, TextPart) else part


def _text(value: Any) -> str:
    from pydantic_core import to_json

    if isinstance(value, str):
        return value
    return "done" if value is None else to_json(_ordered(value)).decode()


def _ordered(value: Any) -> Any:
    """Sets as sorted lists: their order differs from process to process."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=lambda each: json.dumps(each, default=str))
    if isinstance(value, dict):
        return {name: _ordered(part) for name, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in cast("list[Any]", value)]
    return value


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
