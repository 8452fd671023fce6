"""What a wire format is: pure functions between the canonical form and its JSON. No I/O.

Each format works in both directions: as the client of a provider it encodes requests and decodes
replies, as the server for a client it decodes requests and encodes replies. What all of them share
is here as well: providers' quirks, and a provider's failure as one of our errors.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.errors import (
    AuthRejected,
    BadReply,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from holdfast.gateway.formats.json_fields import Json
from holdfast.gateway.formats.sse import SseParser
from holdfast.gateway.messages import Origin, Request
from holdfast.gateway.reply import Completion, Event, Usage


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
    body_version: str | None = None
    """anthropic: on Vertex the version is in the body, and the model in the address alone."""
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


_MAX_TOKENS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_THINKING = ("reasoning_effort", "reasoning", "thinking", "output_config", "thinking_config")
"""Fields by which a client asks a model to reason."""


def at_least_one(value: object) -> int:
    """A number of answers as a client asks for it: one, unless it is a larger whole number."""
    return max(value, 1) if isinstance(value, int) else 1


class FlatRequests:
    """What the formats share whose streams are server-sent events, with the request's settings
    beside one another in its body."""

    name: Origin
    limit_field = "max_tokens"
    stream_type = "text/event-stream"

    def framing(self, max_event: int) -> Framing:
        return SseParser(max_event)

    def output_limits(self, body: Json) -> list[Any]:
        return [body[name] for name in _MAX_TOKENS if name in body]

    def copies(self, body: Json) -> int:
        return at_least_one(body.get("n"))

    def limited(self, body: Json, most: int, quirks: Quirks) -> Json:
        each = max(most // self.copies(body), 1)
        own = quirks.max_tokens_field if self.name == "chat" else self.limit_field
        named = [one for one in _MAX_TOKENS if one in body]
        return dict.fromkeys((own, *named), each)

    def thinks(self, body: Json) -> bool:
        return any(body.get(name) for name in _THINKING)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a provider words it."""

    message: str
    code: str | None = None
    type: str | None = None


class StreamDecoder(Protocol):
    """Turns the data of server-sent events into canonical events."""

    last: bool
    """Nothing of the answer comes after what came: the rest need not be waited for."""

    def feed(self, data: Json) -> Iterable[Event]:
        """The events in one message; raises StreamFailure for an error event."""
        ...

    def close(self) -> Iterable[Event]:
        """The events that the end of the stream stands for (after `[DONE]` or EOF)."""
        ...


class Framing(Protocol):
    """Cuts the bytes of a stream into events, within bounds."""

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """The JSON of each event that `chunk` completes."""
        ...

    def close(self) -> Iterable[bytes]:
        """What the end of the stream completes; raises WireError if it is cut."""
        ...

    def whole(self, data: bytes) -> int:
        """How many bytes at the beginning of `data` are whole events."""
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
    """One wire format."""

    name: Origin
    stream_type: str
    """The content type of its streams."""

    def path(self, model: str, streams: bool) -> str:
        """Where it is spoken, under the provider's base URL."""
        ...

    def framing(self, max_event: int) -> Framing:
        """Reads the events of its streams, none of them longer."""
        ...

    def output_limits(self, body: Json) -> list[Any]:
        """The output limits that a request sets, as it sets them."""
        ...

    def copies(self, body: Json) -> int:
        """How many answers a request asks for."""
        ...

    def limited(self, body: Json, most: int, quirks: Quirks) -> Json:
        """The fields of a request, changed so that its output has no more tokens than that."""
        ...

    def thinks(self, body: Json) -> bool:
        """Whether a request asks the model to reason."""
        ...

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


def failed_response(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, format: Format
) -> ProviderError:
    """The error for a reply with an error status; its body is the provider's word for it."""
    parsed: Any = None
    try:
        parsed = json.loads(body)
    except ValueError:
        pass
    failure = format.decode_failure(parsed) or Failure(_plain(headers, body))
    return classify_failure(provider, status, failure, retry_after=retry_after(headers))


def classify_failure(
    provider: str, status: int | None, failure: Failure, *, retry_after: float | None = None
) -> ProviderError:
    """Status and words to the error that says what can be done about it."""
    words = failure.message.strip()[:1000] or "no reason given"
    message = f"{provider}: {words}"
    code = failure.code
    if status is None:
        status = _status_of(failure)
    if 300 <= status < 400:
        return BadReply(
            f"{provider} sent us elsewhere ({status}); redirects are not followed", status=status
        )
    kind: type[ProviderError]
    if status == 429:
        kind = RateLimited
    elif status in (401, 403):
        kind = AuthRejected
    elif status in (408, 504):
        kind = ProviderTimeout
    elif status >= 500:
        kind = ProviderUnavailable
    elif status == 404:
        kind = NotServed
    else:
        kind = RequestRejected
    return kind(message, status=status, code=code, retry_after=retry_after)


class NotServed(RequestRejected):
    """The provider does not know the model; another may."""

    http_status = 404
    falls_back = True


def _status_of(failure: Failure) -> int:
    words = f"{failure.code or ''} {failure.type or ''}"
    if "rate" in words:
        return 429
    if "overload" in words:
        return 529
    return 400 if "invalid" in words else 500


def _plain(headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "")
    if "html" in kind or not body.strip():
        return "an error without a readable reason"
    return body[:500].decode("utf-8", "replace")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds the provider asks us to wait; None if it says nothing readable."""
    precise = headers.get("retry-after-ms")
    if precise is not None:
        wait = _number(precise)
        return None if wait is None else wait / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    wait = _number(value)
    if wait is not None:
        return wait
    moment = email.utils.parsedate_tz(value)
    if moment is None:
        return None
    try:
        return max(email.utils.mktime_tz(moment) - (time.time() if now is None else now), 0.0)
    except (OverflowError, ValueError):
        return None


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
