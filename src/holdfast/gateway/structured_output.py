"""`generate_object`: an answer as typed data.

The type's JSON schema goes to the provider, which holds the model to it where it can; the answer
is validated in any case, and the model is told what was wrong and asked again a few times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, Unpack, cast

from holdfast.errors import BadReply
from holdfast.gateway.calls import Options, make_request, perform
from holdfast.gateway.messages import Message, user
from holdfast.gateway.reply import Reply
from holdfast.gateway.request import OutputSchema

T = TypeVar("T")
_WRAPPED = "value"


@dataclass(frozen=True, slots=True)
class ObjectReply(Generic[T]):
    """The typed answer, and the reply it came in."""

    object: T
    reply: Reply
    asked: int
    """How many calls it took."""


async def generate_object(
    model: str,
    *,
    schema: type[T],
    system: str | None = None,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    repairs: int = 1,
    **options: Unpack[Options],
) -> ObjectReply[T]:
    """Ask a model for data of a type: a pydantic model, a dataclass, or any annotated type.

    city = (await generate_object("openai/gpt-5.2", schema=City, prompt="…")).object
    """
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[T] = TypeAdapter(schema)
    output, wrapped = output_schema(adapter.json_schema(), getattr(schema, "__name__", "output"))
    request = make_request(model, system, prompt, messages, {**options, "output": output})
    asked = 0
    while True:
        asked += 1
        reply = await perform(request, options)
        try:
            return ObjectReply(validated(adapter, reply.text, wrapped=wrapped), reply, asked)
        except (ValidationError, ValueError) as error:
            if asked > repairs or reply.finish in ("refusal", "content_filter"):
                raise BadReply(
                    f"{reply.served_by} did not answer with a valid {output.name}: {_short(error)}",
                    hint="a larger model, a larger max_tokens or a simpler type may help",
                    bought=True,
                ) from error
            words = f"That was not valid: {_short(error)}\nAnswer again, with valid JSON only."
            more = (*request.messages, reply.message, user(words))
            request = replace(request, messages=more)


def output_schema(schema: dict[str, Any], name: str) -> tuple[OutputSchema, bool]:
    """The schema as providers take it, and whether the value had to be wrapped in an object."""
    wrapped = schema.get("type") != "object" and "$ref" not in schema
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
        if definitions:
            schema["$defs"] = definitions
    closed = _close(schema)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]
    return OutputSchema(schema, safe or "output", strict=closed), wrapped


def _close(schema: Any) -> bool:
    """Close every object to unnamed properties; False if one has to stay open.

    Strict providers want every property required and none unnamed; optional ones are left as
    they are and make the schema not strict.
    """
    if isinstance(schema, list):
        return False not in [_close(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return True
    found = cast("dict[str, Any]", schema)
    # Every one is looked at, since closing is what this is for: no `all` that stops early.
    inner = [_close(one) for name, one in found.items() if name not in ("enum", "const")]
    strict = False not in inner
    if found.get("type") == "object":
        properties: dict[str, Any] = found.get("properties", {})
        if "additionalProperties" not in found:
            found["additionalProperties"] = False
        closed = found["additionalProperties"] is False
        strict = strict and closed and set(found.get("required", ())) == set(properties)
    return strict


def validated(adapter: Any, text: str, *, wrapped: bool) -> Any:
    """The typed data in an answer; raises ValueError for what does not fit."""
    data = json.loads(_unfenced(text))
    if wrapped:
        if not isinstance(data, dict) or _WRAPPED not in data:
            raise ValueError(f"an object with {_WRAPPED!r} was expected")
        data = cast("dict[str, Any]", data)[_WRAPPED]
    # By JSON's rules: dates and enums come as text.
    return adapter.validate_json(json.dumps(data))


def _unfenced(text: str) -> str:
    """The text without the code fence some models put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    return text


def _short(error: Exception) -> str:
    return str(error)[:600]
