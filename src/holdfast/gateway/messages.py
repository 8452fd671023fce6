"""Messages, their parts, tools and the request: the canonical form of what is asked of a model.

No provider's names, no wire details: every wire format is translated to and from it. Plain frozen
dataclasses with a `type` each, so that they can be journaled and shown as JSON. What a provider
needs to see again (reasoning signatures, encrypted reasoning, item ids) is kept in the part it came
with, together with the format it came from: it is sent back to that format only, since no other
could read it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from holdfast.errors import BadReply

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["chat", "responses", "anthropic", "gemini", "bedrock", "cohere"]
CacheFor = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Citation:
    """What a text rests on: a page, a document, a tool's answer.

    `start` and `end` are places in the text, in characters; without them all of it is meant.
    """

    url: str | None = None
    title: str | None = None
    quote: str | None = None
    """The words cited, as the source has them."""
    source: str | None = None
    """A document or file that the model was given, by its id or its number there."""
    start: int | None = None
    end: int | None = None
    own: str | None = None
    """The same in its provider's words, as JSON; only that provider sees it again."""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text. `cache` marks the end of a prefix the provider should cache, where it can."""

    text: str
    cache: CacheFor | None = None
    citations: tuple[Citation, ...] = ()
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
class FilePart:
    """A document, a recording or a film: base64 `data` with its `media_type`, a `url` that the
    provider fetches, or the `file_id` of one that the provider keeps."""

    data: str | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    cache: CacheFor | None = None
    type: Literal["file"] = "file"

    @classmethod
    def of(cls, data: bytes, media_type: str, name: str | None = None) -> FilePart:
        """The file in these bytes: `FilePart.of(pdf, "application/pdf", "report.pdf")`."""
        return cls(data=base64.b64encode(data).decode(), media_type=media_type, name=name)

    @property
    def kind(self) -> str:
        """The part of the media type before the slash: `audio`, `video`, `application`."""
        return (self.media_type or "").partition("/")[0]


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
    content: tuple[TextPart | ImagePart | FilePart, ...] = ()
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


Part = TextPart | ImagePart | FilePart | ToolCallPart | ToolResultPart | ReasoningPart | RefusalPart
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
    """What the user says: text, pictures, files."""
    return Message("user", _parts(content))


def assistant(*content: str | Part) -> Message:
    """What the model said earlier."""
    return Message("assistant", _parts(content))


def tool_result(
    call_id: str, *content: str | TextPart | ImagePart | FilePart, is_error: bool = False
) -> Message:
    """A tool's answer to the call with this id: text, pictures, files."""
    parts = tuple(TextPart(part) if isinstance(part, str) else part for part in content)
    return Message("tool", (ToolResultPart(call_id, parts, is_error),))


def _parts(content: tuple[str | Part, ...]) -> tuple[Part, ...]:
    return tuple(TextPart(part) if isinstance(part, str) else part for part in content)


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the model may call: a name, what it does, and a JSON schema of its arguments."""

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """The tool for a Python function: its name, docstring and annotated arguments."""
        from pydantic import TypeAdapter  # slow to import, and not needed by all

        schema: dict[str, Any] = TypeAdapter(cast(Any, function)).json_schema()
        schema.setdefault("type", "object")
        return cls(function.__name__, (function.__doc__ or "").strip(), schema)


@dataclass(frozen=True, slots=True)
class ProviderTool:
    """A tool that the provider runs by itself, where it has it: `web_search`, `code_execution`,
    `web_fetch`. `options` are sent as they are, in the provider's own words."""

    name: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called: `auto`, `none`, `required`, or `tool` for the one named."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON the reply has to be; `schema` None asks for any JSON object."""

    schema: dict[str, Any] | None = None
    name: str = "output"
    strict: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a model.

    `extra` holds fields of one wire format that have no canonical name; they reach a provider
    that speaks this format, and are left out for others.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    output: OutputSchema | None = None
    effort: Effort | None = None
    thinking_tokens: int | None = None
    user: str | None = None
    stream: bool = False
    provider_tools: tuple[ProviderTool, ...] = ()
    left_out: tuple[str, ...] = ()
    """Kinds of tools the client offered that only a provider of its own format could be."""
    extra: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def for_model(self, model: str) -> Request:
        """The same request to another model."""
        return replace(self, model=model)
