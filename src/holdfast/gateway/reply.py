"""What a model answered: the parts, why it stopped, what it used and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from holdfast.gateway.messages import (
    Message,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    TextPart,
    ToolCallPart,
)
from holdfast.records.calls import ProviderAttempt

FinishReason = Literal["stop", "length", "tool_calls", "refusal", "content_filter", "pause"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `input` holds all input, the cached too; `output` holds the reasoning too."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input: read from the provider's cache."""
    cache_write: int = 0
    """Of the input: written to the provider's cache."""
    cache_write_1h: int = 0
    """Of `cache_write`: kept for an hour, at a higher price."""
    reasoning: int = 0
    """Of the output: spent on reasoning."""
    estimated: bool = False
    """The provider did not say; this is our estimate."""

    @property
    def total(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer as decoded from the wire, before price and timing are known."""

    parts: tuple[ReplyPart, ...]
    finish: FinishReason
    model: str
    usage: Usage | None = None
    id: str | None = None
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer: `reply.text`, `reply.tool_calls`, `reply.cost` and how it came about."""

    call_id: str
    parts: tuple[ReplyPart, ...]
    finish: FinishReason
    model: str
    """The model asked for."""
    served_by: str
    """The `provider/model` that answered."""
    usage: Usage
    cost: Decimal | None
    """In US dollars; None when the model's price is unknown."""
    latency: float
    """Seconds from asking to the last byte."""
    first_token: float | None
    """Seconds from asking to the first token."""
    attempts: tuple[ProviderAttempt, ...] = ()
    replayed: bool = False
    """The answer of an earlier, finished call with the same key; nothing was paid for it now."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        if len(self.parts) == 1 and isinstance(self.parts[0], TextPart):
            return self.parts[0].text
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """What can be read of the model's reasoning."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def refusal(self) -> str | None:
        """The model's words for declining, if it declined."""
        words = [part.text for part in self.parts if isinstance(part, RefusalPart)]
        return "".join(words) if words else None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tools the model wants called."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def message(self) -> Message:
        """The reply as a message, to go on from."""
        return Message("assistant", self.parts)
