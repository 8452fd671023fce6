"""An HTTP client's call as work for the call loop: raw where formats match, else translated.

Beside conversations there are endpoints (embeddings, counting a request's tokens), whose bodies go
to a provider of the same format and come back as they are. They are calls like any other, with
record, price, budget and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast import json_text
from holdfast.errors import BadReply, ProviderError, UsageError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.canonical_json import completion_text
from holdfast.gateway.config import Bounds
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json, WireError, count, dumps, fields
from holdfast.gateway.formats.translation import check_target, check_translatable
from holdfast.gateway.input_bounds import input_bound, unbounded
from holdfast.gateway.input_bounds import input_bound as bound_of
from holdfast.gateway.messages import Origin, Request
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import Assembler, Completion, End, Event, Usage
from holdfast.gateway.service.http_response import BufferSink, Headers, Sink, returned_headers
from holdfast.gateway.service.passthrough import Passthrough
from holdfast.gateway.upstream import Backends, Outgoing, StreamReader, decode

_MAX_TOKENS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
FORWARDED = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a client that reach a provider of its own format; no others do."""
_THINKING = ("reasoning_effort", "reasoning", "thinking", "output_config", "thinking_config")
"""Fields by which a client asks a model to reason."""
STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class HttpCall:
    """One client's call."""

    def __init__(
        self,
        format: Format,
        body: Json,
        raw: bytes,
        sink: Sink,
        backends: Backends,
        *,
        bounds: Bounds,
        forward: Headers,
        keeps_content: bool,
        input_bound: int | None = None,
    ) -> None:
        self._format, self._body, self._raw, self._sink = format, body, raw, sink
        self._backends, self._bounds = backends, bounds
        self._forward = forward
        self._headers: Headers = {}
        self._keeps_content = keeps_content
        self._declared = input_bound
        self._request: Request | None = None
        self._said: list[bytes] = []
        self.streams = bool(body.get("stream"))
        self.error_sent = False
        """The provider's own error event went to the client already."""

    def begin(self, call_id: str) -> None:
        self._headers["x-holdfast-call"] = call_id

    def check(self, candidates: Sequence[Candidate]) -> None:
        """Refuse what can't be translated for one of them, before anything is spent."""
        translated = [candidate for candidate in candidates if not self.is_raw(candidate)]
        for candidate in translated:
            for format in candidate.provider.formats[:1]:  # a script has none
                check_target(self.request(), format)
        if translated and (left_out := self.request().left_out):
            self._headers["x-holdfast-left-out"] = ", ".join(left_out)

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        body = self._body
        given = [body[name] for name in _MAX_TOKENS if name in body]
        limits = [one for one in given if isinstance(one, int) and one is not True and one > 0]
        # Some take a limit below 1 for none: then ours is set.
        asked = max(limits) if limits and len(limits) == len(given) else None
        copies = body.get("n")
        if isinstance(copies, int) and copies > 1 and asked is not None:
            asked *= copies
        has_picture = b"image" in self._raw
        bound = bound_of(body if has_picture else None, len(self._raw))
        if not self.is_raw(candidate):
            bound += len(self._raw) // 4  # another format's wrapping may be longer
        return max(bound, self._declared or 0), asked

    def unbounded(self, candidate: Candidate) -> str | None:
        # What can't be translated is refused or left out: only its own provider would see it.
        if self._declared is not None or not self.is_raw(candidate):
            return None
        return unbounded(self._body)

    def is_raw(self, candidate: Candidate) -> bool:
        """Whether the provider speaks the client's own format."""
        return self._format.name in candidate.provider.formats

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        meter.thinks = any(self._body.get(name) for name in _THINKING)
        if self.is_raw(candidate):
            await self._pass(candidate, cap, key, meter)
        else:
            await self._translate(candidate, cap, key, meter)

    # --- raw -------------------------------------------------------------------------------

    async def _pass(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        provider = await self._backends.ready(candidate)
        body, hide_usage = self._raw_body(candidate, cap)
        out = Outgoing(
            provider, candidate.model, self._format.name, body, self.streams, key, self._forward
        )
        upstream = self._backends.upstream
        async with upstream.open(out, meter) as exchange:
            await upstream.check(exchange, out, self._format)
            headers = returned_headers(exchange.headers)
            if self.streams:
                await self._pass_stream(exchange, provider.name, meter, headers, hide_usage)
            else:
                await self._pass_whole(exchange, provider.name, meter, headers)

    def _raw_body(self, candidate: Candidate, cap: int | None) -> tuple[bytes, bool]:
        """The bytes to send: the client's own unless something must change."""
        changed: Json = {}
        if self._body.get("model") != candidate.model:
            changed["model"] = candidate.model
        quirks, hide_usage = candidate.provider.quirks, False
        if cap is not None:
            name = {"chat": quirks.max_tokens_field, "responses": "max_output_tokens"}.get(
                self._format.name, "max_tokens"
            )
            copies = self._body.get("n")
            each = max(cap // max(copies if isinstance(copies, int) else 1, 1), 1)
            named = [one for one in _MAX_TOKENS if one in self._body]
            changed |= dict.fromkeys((name, *named), each)
        if self._format.name == "chat" and self.streams and quirks.stream_usage:
            options = fields(self._body.get("stream_options") or {}, "stream_options")
            if not options.get("include_usage"):
                changed["stream_options"] = {**options, "include_usage": True}
                hide_usage = True
        return (dumps({**self._body, **changed}) if changed else self._raw), hide_usage

    async def _pass_stream(
        self, exchange: Exchange, name: str, meter: Meter, headers: Headers, hide_usage: bool
    ) -> None:
        watch = Passthrough(
            self._format.name, name, meter, self._bounds.event, hide_usage=hide_usage
        )
        async for chunk in exchange.chunks():
            try:
                kept = watch.feed(chunk)
            except ProviderError:
                if watch.failed:  # the provider's own word for it
                    await self._emit(watch.failed, meter, headers)
                    self.error_sent = True
                raise
            await self._emit(kept, meter, headers, last=watch.whole)
            if watch.whole:
                break
        watch.close()

    async def _pass_whole(
        self, exchange: Exchange, name: str, meter: Meter, headers: Headers
    ) -> None:
        body = await exchange.read()
        decode(body, name, self._format, meter)
        await self._whole(body, meter, headers)

    # --- translated ------------------------------------------------------------------------

    async def _translate(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        request = self.request()
        if cap is not None:
            request = replace(request, max_tokens=cap)
        if not self.streams:
            completion = await self._backends.complete(candidate, request, key, meter)
            body = dumps(self._format.encode_reply(completion, request))
            await self._whole(body, meter, {})
            return
        encoder = self._format.encoder(request)

        async def emit(event: Event) -> None:
            if data := encoder.encode(event):
                await self._emit(data, meter, {}, last=isinstance(event, End))

        await self._backends.stream(candidate, request, key, meter, emit=emit)

    def request(self) -> Request:
        """The client's request in canonical form; raises UsageError for what can't be said."""
        if self._request is None:
            try:
                check_translatable(self._format.name, self._body)
                self._request = self._format.decode_request(self._body)
            except WireError as error:
                raise UsageError(str(error)) from error
        return self._request

    # --- out -------------------------------------------------------------------------------

    async def _emit(
        self, data: bytes, meter: Meter, headers: Headers, *, last: bool = False
    ) -> None:
        if not data:
            return
        meter.emit()
        if not self._sink.started:
            await self._sink.start(200, {**STREAM_HEADERS, **headers, **self._headers})
        if self._keeps_content:
            self._said.append(data)
        await self._sink.write(data, last=last)

    async def _whole(self, body: bytes, meter: Meter, headers: Headers) -> None:
        meter.emit()
        head = {"content-type": "application/json", "content-length": str(len(body))}
        await self._sink.start(200, {**head, **headers, **self._headers})
        if self._keeps_content:
            self._said.append(body)
        await self._sink.write(body, last=True)

    def reply(self) -> str | None:
        """The answer as the client got it; a stream put together, or redaction would miss what
        it cut into pieces."""
        said = b"".join(self._said)
        if not self.streams:
            return said.decode("utf-8", "replace")
        return completion_text(_assembled(said, self._format, self._bounds))

    def replay(self) -> bytes | None:
        return self._sink.packed() if isinstance(self._sink, BufferSink) else None


def _assembled(said: bytes, format: Format, bounds: Bounds) -> Completion:
    reader, assembler = StreamReader("the provider", format, bounds.reply), Assembler()
    for event in (*reader.feed(said), *reader.close()):
        assembler.add(event)
    return assembler.completion()


_KEPT = 16384
"""Bytes of an answer that are kept for the inspector: vectors are not worth their room."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of providers that speak one of our formats."""

    name: str
    """As calls are recorded: their `format`."""
    path: str
    format: Origin
    free: bool
    """Nobody bills for it."""


ENDPOINTS = {
    "/v1/embeddings": Endpoint("embeddings", "/embeddings", "chat", free=False),
    "/v1/messages/count_tokens": Endpoint(
        "count_tokens", "/messages/count_tokens", "anthropic", free=True
    ),
}


class EndpointCall:
    """One client's call of an endpoint, as work for the call loop."""

    streams = error_sent = False

    def __init__(
        self,
        endpoint: Endpoint,
        body: Json,
        raw: bytes,
        sink: Sink,
        backends: Backends,
        *,
        forward: Headers,
    ) -> None:
        self._endpoint, self._body, self._raw = endpoint, body, raw
        self._sink, self._backends, self._forward = sink, backends, forward
        self._headers: Headers = {}
        self._said = b""
        self._format: Format = FORMATS[endpoint.format]

    def begin(self, call_id: str) -> None:
        self._headers["x-holdfast-call"] = call_id

    def check(self, candidates: Sequence[Candidate]) -> None:
        """Refuse what none of them has."""
        for candidate in candidates:
            provider = candidate.provider
            if provider.kind != "http" or self._endpoint.format not in provider.formats:
                raise UsageError(
                    f"{provider.name} has no {self._endpoint.name}",
                    hint=f"name a model of a provider that speaks {self._endpoint.format}",
                )

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        return (0 if self._endpoint.free else input_bound(None, len(self._raw))), 0

    def unbounded(self, candidate: Candidate) -> str | None:
        return None

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        body, provider = self._raw, candidate.provider
        if self._body.get("model") != candidate.model:
            body = dumps({**self._body, "model": candidate.model})
        out = Outgoing(
            provider, candidate.model, self._endpoint.format, body, False, key, self._forward,
            path=self._endpoint.path,
        )  # fmt: skip
        upstream = self._backends.upstream
        async with upstream.open(out, meter) as exchange:
            await upstream.check(exchange, out, self._format)
            said = await exchange.read()
            headers = returned_headers(exchange.headers)
        self._note(provider.name, said, meter)
        meter.emit()
        head = {"content-type": "application/json", "content-length": str(len(said))}
        await self._sink.start(200, {**head, **headers, **self._headers})
        self._said = said
        await self._sink.write(said, last=True)

    def _note(self, provider: str, said: bytes, meter: Meter) -> None:
        """Keep account of what the answer says of itself; raises BadReply if it is none."""
        try:
            answer = fields(json_text.load(said))
            usage = fields(answer.get("usage") or {}, "usage")
            tokens = count(usage.get("prompt_tokens"))
        except (ValueError, RecursionError, WireError) as error:
            raise BadReply(f"{provider}'s reply is not usable: {error}", bought=True) from error
        if self._endpoint.free:
            meter.usage, meter.free = Usage(), True
        elif tokens:
            meter.usage = Usage(input=tokens)
        model = answer.get("model")
        meter.model = model if isinstance(model, str) and model else meter.model
        meter.finish = "stop"

    def reply(self) -> str | None:
        return self._said.decode("utf-8", "replace") if len(self._said) <= _KEPT else None

    def replay(self) -> bytes | None:
        return self._sink.packed() if isinstance(self._sink, BufferSink) else None
