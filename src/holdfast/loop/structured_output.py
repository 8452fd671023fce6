"""An agent's answer as data of a type: the schema to ask for, the check, the words of repair."""

from __future__ import annotations

from typing import Any

from holdfast.gateway.request import OutputSchema
from holdfast.gateway.structured_output import output_schema, validated


class TextOutput:
    """The answer is the model's text."""

    schema: OutputSchema | None = None

    def read(self, text: str) -> Any:
        return text


class TypedOutput:
    """The answer is data of a type: a pydantic model, a dataclass, any annotated type."""

    def __init__(self, type: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(type)
        name = getattr(type, "__name__", "output")
        self.schema, self._wrapped = output_schema(self._adapter.json_schema(), name)

    def read(self, text: str) -> Any:
        """The answer; raises ValueError for what does not fit."""
        return validated(self._adapter, text, wrapped=self._wrapped)


Output = TextOutput | TypedOutput


def repair_words(error: ValueError) -> str:
    """What the model is told when its answer does not fit."""
    return f"That was not valid: {str(error)[:600]}\nAnswer again, with valid JSON only."
