"""Messages and their parts: the canonical form every wire format is translated to and from.

Plain frozen dataclasses with a `type` each, so that they can be journaled and shown as JSON.
What a provider needs to see again (reasoning signatures, encrypted reasoning, item ids) is kept
in the part it came with, together with the format it came from: it is sent back to that format
only, since no other could read it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import BadReply

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["chat", "responses", "anthropic"]
CacheFor = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text. `cache` marks the end of a prefix the provider should cache, where it can."""

    text: str
    cache: CacheFor | None = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture: base64 `data` with its `media_type`, or a `url` the provider fetches."""

    data: str | None = None
    media_type: str | None = None
    url: str | None = None
    detail: str | None = None
    cache: CacheFor | None = None
    type: Literal["image"] = "image"

    @classmethod
    def of(cls, data: bytes, media_type: str) -> ImagePart:
        """The picture in these bytes."""
        return cls(data=base64.b64encode(data).decode(), media_type=media_type)


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """The model's wish to call a tool; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = ""
    item: str | None = None
    """The responses format's id of the item, beside the call's own."""
    type: Literal["tool_call"] = "tool_call"

    @property
    def input(self) -> Any:
        """The arguments as data; raises BadReply if the model's JSON is broken."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError as error:
            raise BadReply(
                f"the arguments of the call to {self.name!r} are broken JSON: {error}",
                hint="tell the model, as the tool's result with is_error=True",
            ) from error


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool answered to the call with this id."""

    call_id: str
    content: tuple[TextPart | ImagePart, ...] = ()
    is_error: bool = False
    cache: CacheFor | None = None
    type: Literal["tool_result"] = "tool_result"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """The model's reasoning, kept so that it can be sent back as the provider needs it.

    `signature` is Anthropic's; `encrypted` is Anthropic's redacted thinking or OpenAI's
    encrypted reasoning; `item` is the responses format's id.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    item: str | None = None
    origin: Origin | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class RefusalPart:
    """The model's words for declining."""

    text: str
    type: Literal["refusal"] = "refusal"


Part = TextPart | ImagePart | ToolCallPart | ToolResultPart | ReasoningPart | RefusalPart
ReplyPart = TextPart | ToolCallPart | ReasoningPart | RefusalPart


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: who speaks, and in which parts."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def system(text: str) -> Message:
    """Instructions: `system("Answer in French.")`."""
    return Message("system", (TextPart(text),))


def user(*content: str | Part) -> Message:
    """What the user says: text, pictures."""
    return Message("user", _parts(content))


def assistant(*content: str | Part) -> Message:
    """What the model said earlier."""
    return Message("assistant", _parts(content))


def tool_result(call_id: str, text: str, *, is_error: bool = False) -> Message:
    """A tool's answer to the call with this id."""
    return Message("tool", (ToolResultPart(call_id, (TextPart(text),), is_error),))


def _parts(content: tuple[str | Part, ...]) -> tuple[Part, ...]:
    return tuple(TextPart(part) if isinstance(part, str) else part for part in content)
