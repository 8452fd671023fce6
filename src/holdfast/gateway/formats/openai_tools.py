"""Tools, their choice and structured output, as both of OpenAI's formats have them.

The two say the same, chat in an object of its own (`function`, `json_schema`) and responses in
place: what differs is handed in.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.gateway.formats.json_fields import Json, fields, text
from holdfast.gateway.request import OutputSchema, Tool, ToolChoice


def is_free(choice: object) -> bool:
    """Whether the model may choose its tools, or none."""
    return choice in (None, "auto", "none")


def decode_function(function: Json, path: str) -> Tool:
    return Tool(
        name=text(function.get("name"), f"{path}.name"),
        description=str(function.get("description") or ""),
        schema=function.get("parameters") or {"type": "object", "properties": {}},
        strict=function.get("strict"),
    )


def decode_choice(value: object, name: Callable[[Json], str]) -> ToolChoice | None:
    """A word, or the tool whose name `name` finds in the object."""
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    return ToolChoice("tool", name(fields(value, "tool_choice")))


def encode_schema(output: OutputSchema) -> Json:
    return {"name": output.name, "schema": output.schema, "strict": output.strict}


def decode_output(value: object, path: str, schema: Callable[[Json], Json]) -> OutputSchema | None:
    """The wanted output at `path`; `schema` finds the object that holds its schema."""
    if value is None:
        return None
    wanted = fields(value, path)
    if wanted.get("type") == "json_object":
        return OutputSchema()
    if wanted.get("type") != "json_schema":
        return None
    found = schema(wanted)
    return OutputSchema(
        schema=found.get("schema"),
        name=str(found.get("name") or "output"),
        strict=bool(found.get("strict")),
    )
