"""A request to a model, in the canonical form: no provider's names, no wire details."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from holdfast.gateway.messages import Message

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
        from pydantic import TypeAdapter

        schema: dict[str, Any] = TypeAdapter(cast(Any, function)).json_schema()
        schema.setdefault("type", "object")
        return cls(function.__name__, (function.__doc__ or "").strip(), schema)


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
    left_out: tuple[str, ...] = ()
    """Kinds of tools the client offered that only a provider of its own format could be."""
    extra: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def for_model(self, model: str) -> Request:
        """The same request to another model."""
        return replace(self, model=model)
