"""An HTTP client's call as work for the call loop: raw where formats match, else translated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import ProviderError, UsageError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.canonical_json import completion_text
from holdfast.gateway.config import Bounds
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.formats.anthropic import for_vertex
from holdfast.gateway.formats.base import Format, Quirks
from holdfast.gateway.formats.json_fields import Json, WireError, dumps, fields
from holdfast.gateway.formats.translation import check_target, check_translatable
from holdfast.gateway.hooks import Hook
from holdfast.gateway.input_bounds import input_bound as bound_of
from holdfast.gateway.input_bounds import unbounded
from holdfast.gateway.messages import Request
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import Assembler, Completion, End, Event, Start
from holdfast.gateway.service.conversations import Conversations
from holdfast.gateway.service.http_response import BufferSink, Headers, Sink, returned_headers
from holdfast.gateway.service.passthrough import Passthrough
from holdfast.gateway.upstream import Backends, Outgoing, StreamReader, decode, encode

FORWARDED = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a client that reach a provider of its own format; no others do."""


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
        model: str,
        streams: bool,
        conversations: Conversations,
        input_bound: int | None = None,
    ) -> None:
        self._model, self._conversations = model, conversations
        self._format, self._body, self._raw, self._sink = format, body, raw, sink
        self._backends, self._bounds = backends, bounds
        self._forward = forward
        self._headers: Headers = {}
        self._keeps_content = keeps_content
        self._declared = input_bound
        self._request: Request | None = None
        self._changed = False
        """A hook asks for something else than the client."""
        self._said: list[bytes] = []
        self.streams = streams
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

    async def pass_by(self, hooks: Sequence[Hook], tags: tuple[str, ...]) -> bytes:
        """Let hooks see the request, and change it; returns what is asked now, in its own format.

        What can't be read in canonical form is refused: a hook would not see it.
        """
        before = request = self.request()
        for hook in hooks:
            request = await hook.before(request, tags)
        if request == before:
            return self._raw
        self._request, self._changed = request, True
        return dumps(self._format.encode_request(request, Quirks()))

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        if self._changed:
            formats = candidate.provider.formats or ("chat",)
            body = encode(candidate, self.request(), formats[0])
            bound = bound_of(body, len(dumps(body)))
            return max(bound, self._declared or 0), self.request().max_tokens
        body = self._body
        given = self._format.output_limits(body)
        limits = [one for one in given if isinstance(one, int) and one is not True and one > 0]
        # Some take a limit below 1 for none: then ours is set.
        asked = max(limits) if limits and len(limits) == len(given) else None
        if asked is not None:
            asked *= self._format.copies(body)
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
        """Whether the provider speaks the client's own format, and may have what it said."""
        return not self._changed and self._format.name in candidate.provider.formats

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        meter.thinks = self._format.thinks(self._body)
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
        if "model" in self._body and self._body["model"] != candidate.model:
            changed["model"] = candidate.model
        quirks, hide_usage = candidate.provider.quirks, False
        if cap is not None:
            changed |= self._format.limited(self._body, cap, quirks)
        if self._format.name == "chat" and self.streams and quirks.stream_usage:
            options = fields(self._body.get("stream_options") or {}, "stream_options")
            if not options.get("include_usage"):
                changed["stream_options"] = {**options, "include_usage": True}
                hide_usage = True
        if quirks.body_version is not None:
            return dumps(for_vertex({**self._body, **changed}, quirks.body_version)), hide_usage
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
        kept = self._conversations.new_id() if self._is_kept else None
        if not self.streams:
            completion = await self._backends.complete(candidate, request, key, meter)
            if kept is not None:
                completion = replace(completion, id=kept)
                await self._conversations.keep(self._body, completion)
            body = dumps(self._format.encode_reply(completion, request))
            await self._whole(body, meter, {})
            return
        encoder, assembler = self._format.encoder(request), Assembler()

        async def emit(event: Event) -> None:
            if kept is not None:
                event = replace(event, id=kept) if isinstance(event, Start) else event
                assembler.add(event)
                if isinstance(event, End):  # before its client can go on from it
                    await self._conversations.keep(self._body, assembler.completion())
            if data := encoder.encode(event):
                await self._emit(data, meter, {}, last=isinstance(event, End))

        await self._backends.stream(candidate, request, key, meter, emit=emit)

    @property
    def _is_kept(self) -> bool:
        """Whether the client may go on from this answer by its id: unless it says otherwise."""
        wanted = self._format.name == "responses" and self._body.get("store") is not False
        return wanted and self._conversations.keeps

    def request(self) -> Request:
        """The client's request in canonical form; raises UsageError for what can't be said."""
        if self._request is None:
            try:
                check_translatable(self._format.name, self._body)
                named = {"model": self._model, "stream": self.streams}
                self._request = self._format.decode_request({**self._body, **named})
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
            kind = {"content-type": _stream_type(self._format), "cache-control": "no-cache"}
            await self._sink.start(200, {**kind, **headers, **self._headers})
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


def _stream_type(format: Format) -> str:
    kind = format.stream_type
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _assembled(said: bytes, format: Format, bounds: Bounds) -> Completion:
    reader, assembler = StreamReader("the provider", format, bounds.reply), Assembler()
    for event in (*reader.feed(said), *reader.close()):
        assembler.add(event)
    return assembler.completion()
