"""What a model answered: whole, with use and cost, and as the small events it streams as.

In a stream parts are numbered; a part starts, grows by deltas and ends. An `End` is the only proof
that the answer is whole: a stream without one was cut. `Assembler` makes a whole answer of events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from holdfast.errors import BadReply
from holdfast.gateway.messages import (
    Citation,
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
    searches: int = 0
    """Web searches that the provider made, which have a price of their own."""
    letters: int = 0
    """Letters spoken, where speech is billed by them."""
    seconds: float = 0.0
    """Seconds of sound heard, where they are billed."""

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
    def citations(self) -> tuple[Citation, ...]:
        """What the answer rests on, in order; their places are in the part that has them."""
        return tuple(
            one for part in self.parts if isinstance(part, TextPart) for one in part.citations
        )

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


@dataclass(frozen=True, slots=True)
class Start:
    """The provider has begun: its id for the reply, and the model that serves."""

    id: str | None
    model: str
    usage: Usage | None = None
    """What is known of the usage at the start (Anthropic tells the input)."""


@dataclass(frozen=True, slots=True)
class PartStart:
    """Part `index` begins as `part`, empty or partly filled."""

    index: int
    part: ReplyPart


@dataclass(frozen=True, slots=True)
class PartDelta:
    """Part `index` grows: by text, or by argument text for a tool call."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class PartEnd:
    """Part `index` is whole; what came with its end is added to it."""

    index: int
    signature: str | None = None
    encrypted: str | None = None
    citations: tuple[Citation, ...] = ()
    """What a text rests on; their places are in the whole text of the part."""


@dataclass(frozen=True, slots=True)
class End:
    """The answer is whole."""

    finish: FinishReason
    usage: Usage | None = None
    stop_sequence: str | None = None


Event = Start | PartStart | PartDelta | PartEnd | End
OnEvent = Callable[[Event], Awaitable[None]]
"""Takes the events of an answer as they come."""


class Assembler:
    """Gathers events into a whole answer."""

    def __init__(self) -> None:
        self._parts: dict[int, ReplyPart] = {}
        self._text: dict[int, list[str]] = {}
        self._start: Start | None = None
        self.end: End | None = None

    def add(self, event: Event) -> None:
        match event:
            case PartDelta():
                self._text[event.index].append(event.text)
            case PartStart():
                self._parts[event.index] = event.part
                self._text[event.index] = []
            case PartEnd():
                part = self._parts[event.index]
                if isinstance(part, ReasoningPart):
                    self._parts[event.index] = replace(
                        part,
                        signature=event.signature or part.signature,
                        encrypted=event.encrypted or part.encrypted,
                    )
                elif event.citations and isinstance(part, TextPart):
                    self._parts[event.index] = replace(part, citations=event.citations)
            case Start():
                self._start = event
            case End():
                self.end = event

    def completion(self) -> Completion:
        """The whole answer; raises BadReply if the end never came."""
        if self.end is None:
            raise BadReply("the reply ended without its end mark")
        return Completion(
            parts=tuple(self._whole(index) for index in sorted(self._parts)),
            finish=self.end.finish,
            model=self._start.model if self._start else "",
            usage=self.end.usage,
            id=self._start.id if self._start else None,
            stop_sequence=self.end.stop_sequence,
        )

    def received(self) -> str:
        """All text received so far, of every kind: the basis of an estimate."""
        return "".join("".join(pieces) for pieces in self._text.values())

    def _whole(self, index: int) -> ReplyPart:
        part, text = self._parts[index], "".join(self._text[index])
        if isinstance(part, ToolCallPart):
            return replace(part, arguments=part.arguments + text)
        return replace(part, text=part.text + text)


def as_events(completion: Completion) -> Iterator[Event]:
    """A whole answer as the events it could have streamed as."""
    yield Start(completion.id, completion.model, completion.usage)
    for index, part in enumerate(completion.parts):
        if isinstance(part, ToolCallPart):
            yield PartStart(index, replace(part, arguments=""))
            if part.arguments:
                yield PartDelta(index, part.arguments)
            yield PartEnd(index)
        elif isinstance(part, ReasoningPart):
            yield PartStart(index, replace(part, text="", signature=None))
            if part.text:
                yield PartDelta(index, part.text)
            yield PartEnd(index, part.signature, part.encrypted)
        else:
            cited = part.citations if isinstance(part, TextPart) else ()
            empty = replace(part, text="", citations=()) if cited else replace(part, text="")
            yield PartStart(index, empty)
            if part.text:
                yield PartDelta(index, part.text)
            yield PartEnd(index, citations=cited)
    yield End(completion.finish, completion.usage, completion.stop_sequence)
