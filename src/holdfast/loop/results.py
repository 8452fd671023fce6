"""What came of an agent: each of its steps, the whole, and the answer as data of a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar, cast

from holdfast.errors import Unfinished
from holdfast.gateway.calls import output_schema, validated
from holdfast.gateway.messages import (
    FilePart,
    ImagePart,
    Message,
    OutputSchema,
    TextPart,
    ToolResultPart,
)
from holdfast.gateway.reply import Reply, Usage

T = TypeVar("T")

Finish = Literal[
    "stop",
    "stop_when",
    "repeating",
    "max_steps",
    "max_time",
    "budget",
    "length",
    "refusal",
    "content_filter",
    "invalid",
]
"""Why an agent stopped: it was done; `stop_when` said so; it called the same tools over and over;
a bound was reached; the model's answer was cut, refused or filtered; or its answer did not fit
`output` in the end."""

ToolStatus = Literal["done", "failed", "wrong_arguments", "denied", "unknown", "not_run"]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gave back, as the model is told."""

    content: tuple[TextPart | ImagePart | FilePart, ...]
    is_error: bool = False
    status: ToolStatus = "done"


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call of a tool: what was asked, and what came of it."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    """As checked; None if the model's JSON was broken."""
    content: tuple[TextPart | ImagePart | FilePart, ...]
    status: ToolStatus

    @property
    def is_error(self) -> bool:
        return self.status != "done"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def part(self) -> ToolResultPart:
        """The answer to the model's call."""
        return ToolResultPart(self.call_id, self.content, self.is_error)


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One turn of the loop: what the model said, and the tools it had called."""

    number: int
    reply: Reply
    tools: tuple[ToolRun, ...] = ()


@dataclass(frozen=True)
class AgentResult(Generic[T]):
    """What came of an agent: `result.output`, and how it came about."""

    finish: Finish
    text: str
    """The last words of the model."""
    messages: tuple[Message, ...]
    """The whole conversation without the instructions: hand it in again to go on."""
    steps: tuple[AgentStep, ...]
    error: str = ""
    """What stopped it, where there is more to say than `finish` does."""
    value: T | None = None

    @property
    def output(self) -> T:
        """The answer, of the type asked for; raises Unfinished if there is none."""
        # An answer that was read may be None, where `output` allows it; one that was not, is None.
        there = self.finish == "stop" or (self.finish == "stop_when" and self.value is not None)
        if not there:
            why = f": {self.error}" if self.error else ""
            raise Unfinished(
                f"the agent stopped after {len(self.steps)} steps because of {self.finish}{why}",
                hint=_HINTS.get(self.finish, "look at result.finish before result.output"),
            )
        return cast(T, self.value)

    @property
    def usage(self) -> Usage:
        """The tokens of all calls."""
        return total_usage([step.reply for step in self.steps])

    @property
    def cost(self) -> Decimal | None:
        """In US dollars; None if one of the prices is unknown."""
        return total_cost([step.reply for step in self.steps])


_HINTS = {
    "repeating": "see result.steps; max_repeats allows more, None any number",
    "max_steps": "raise max_steps, or make the task smaller",
    "max_time": "raise max_time, or make the task smaller",
    "budget": "raise the budget, or set a smaller max_tokens",
    "length": "raise max_tokens",
    "invalid": "a larger model, more repairs or a simpler type may help",
    "stop_when": "stop_when stopped it before an answer was there: see result.steps",
}


def total_usage(replies: Sequence[Reply]) -> Usage:
    """The tokens of several calls."""
    used = [reply.usage for reply in replies]
    return Usage(
        input=sum(each.input for each in used),
        output=sum(each.output for each in used),
        cached=sum(each.cached for each in used),
        cache_write=sum(each.cache_write for each in used),
        cache_write_1h=sum(each.cache_write_1h for each in used),
        reasoning=sum(each.reasoning for each in used),
        estimated=any(each.estimated for each in used),
    )


def total_cost(replies: Sequence[Reply]) -> Decimal | None:
    """The cost of several calls; None if that of one is unknown."""
    costs = [reply.cost for reply in replies]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


class TextOutput:
    """The answer is the model's text."""

    schema: OutputSchema | None = None

    def read(self, text: str) -> Any:
        return text


class TypedOutput:
    """The answer is data of a type: a pydantic model, a dataclass, any annotated type."""

    def __init__(self, type: Any) -> None:
        from pydantic import TypeAdapter  # slow to import, and not needed by all

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
