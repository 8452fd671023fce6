"""What a wire format is: pure functions between the canonical form and its JSON.

Each format works in both directions: as the client of a provider it encodes requests and
decodes replies, as the server for a client it decodes requests and encodes replies. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.gateway.events import Event
from holdfast.gateway.formats.json_fields import Json
from holdfast.gateway.messages import Origin
from holdfast.gateway.reply import Completion, Usage
from holdfast.gateway.request import Request


@dataclass(frozen=True, slots=True)
class Quirks:
    """How a provider departs from the format it speaks."""

    max_tokens_field: str = "max_tokens"
    """chat: OpenAI's own models want `max_completion_tokens`."""
    stream_usage: bool = True
    """chat: takes `stream_options.include_usage`."""
    json_schema: bool = True
    """Takes a schema for structured output; else the schema is put into the instructions."""
    seed: bool = True
    parallel_tools: bool = True
    effort: bool = True
    sampling: str | None = None
    """A pattern of the models that take `temperature` and `top_p`; None: all do. Others answer
    400 to them, and would to every request translated from a client that sets them."""
    default_max_tokens: int = 8192
    """anthropic: `max_tokens` is required there; this is sent when the caller sets none."""
    drop: tuple[str, ...] = ()
    """Fields this provider refuses."""
    headers: dict[str, str] = field(default_factory=dict[str, str])


def sampling(request: Request, quirks: Quirks, model: str) -> Json:
    """`temperature` and `top_p` as far as the model takes them."""
    if quirks.sampling is not None and not re.fullmatch(quirks.sampling, model):
        return {}
    found: Json = {}
    if request.temperature is not None:
        found["temperature"] = request.temperature
    if request.top_p is not None:
        found["top_p"] = request.top_p
    return found


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a provider words it."""

    message: str
    code: str | None = None
    type: str | None = None


class StreamDecoder(Protocol):
    """Turns the data of server-sent events into canonical events."""

    done: bool
    """The terminal event has come: the answer is whole."""

    def feed(self, data: Json) -> Iterable[Event]:
        """The events in one message; raises StreamFailure for an error event."""
        ...

    def close(self) -> Iterable[Event]:
        """The events that the end of the stream stands for (after `[DONE]` or EOF)."""
        ...


class StreamEncoder(Protocol):
    """Turns canonical events into the bytes a client of this format reads."""

    def encode(self, event: Event) -> bytes: ...


class StreamFailure(Exception):
    """A provider's error event in mid-stream."""

    def __init__(self, failure: Failure, status: int | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.status = status


class Format(Protocol):
    """One wire format; `path` is where it is spoken, under the provider's base URL."""

    name: Origin
    path: str

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        """The request's body; `model` is what this provider calls the model asked for."""
        ...

    def decode_request(self, body: Json) -> Request: ...
    def encode_reply(self, completion: Completion, request: Request | None) -> Json: ...
    def decode_reply(self, body: Json) -> Completion: ...
    def decode_usage(self, body: Json) -> Usage | None: ...
    def decoder(self) -> StreamDecoder: ...
    def encoder(self, request: Request) -> StreamEncoder: ...
    def encode_failure(self, status: int, kind: str, message: str) -> Json: ...
    def decode_failure(self, body: Any) -> Failure | None: ...
    def stream_failure(self, status: int, kind: str, message: str) -> bytes: ...
