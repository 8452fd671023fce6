"""To a provider and back: a request out, its answer in, as canonical data or as raw bytes.

`Backends` is the way for a canonical request: over HTTP, to the local model, or to a script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from holdfast import json_text
from holdfast.errors import BadReply, ProviderError, UsageError
from holdfast.gateway import scripted
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Bounds, GatewayConfig, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import (
    Failure,
    Format,
    StreamDecoder,
    StreamFailure,
    classify_failure,
    failed_response,
)
from holdfast.gateway.formats.json_fields import Json, WireError, dumps, fields
from holdfast.gateway.formats.translation import check_target
from holdfast.gateway.http_client import HttpClient
from holdfast.gateway.local import SERVER
from holdfast.gateway.messages import Origin, Request
from holdfast.gateway.providers import Candidate, Provider
from holdfast.gateway.reply import Completion, End, Event, OnEvent, PartDelta, PartEnd
from holdfast.json_text import ends_in_half, joined

if TYPE_CHECKING:
    from holdfast.gateway.aws import AwsCredentials
    from holdfast.gateway.google_credentials import GoogleCredentials

_WAYS = 1024
"""Addresses that are remembered: a model may be part of one."""


@dataclass(slots=True)
class Outgoing:
    """A request ready to be sent to a provider."""

    provider: Provider
    model: str
    format: Origin
    body: bytes
    streams: bool
    idempotency_key: str | None
    headers: dict[str, str]
    path: str | None = None
    """Where it goes at the provider, if not where the format's requests go."""
    content_type: str = "application/json"


class Upstream:
    """Sends requests to providers over HTTP."""

    def __init__(self, client: HttpClient, timeouts: Timeouts, bounds: Bounds) -> None:
        self._client, self._timeouts, self._bounds = client, timeouts, bounds
        self._ways: dict[tuple[str, str, bool, str], _Way] = {}

    def open(self, out: Outgoing, meter: Meter) -> Exchange:
        provider = out.provider
        path = out.path or _path(out)
        which = (provider.name, out.format, out.streams, path)
        way = self._ways.get(which)
        if way is None or way.provider is not provider:
            if len(self._ways) > _WAYS:
                self._ways.clear()
            way = self._ways[which] = _Way(out, path)
        headers = way.headers
        if provider.aws_keys is not None:
            from holdfast.gateway import aws

            keys, region = provider.aws_keys, provider.region
            headers = {**headers, **aws.sign(keys, region, "POST", way.url, out.body)}
        if out.headers or out.idempotency_key:
            headers = {**headers, **out.headers}
            if out.idempotency_key:
                headers["Idempotency-Key"] = out.idempotency_key
        return Exchange(
            self._client,
            provider.name,
            way.url,
            headers=headers,
            body=out.body,
            meter=meter,
            timeouts=self._timeouts,
            bounds=self._bounds,
            streams=out.streams,
        )

    async def complete(self, out: Outgoing, meter: Meter) -> Completion:
        """The whole answer, decoded."""
        format = FORMATS[out.format]
        async with self.open(out, meter) as exchange:
            await self.check(exchange, out, format)
            body = await exchange.read()
        return decode(body, out.provider.name, format, meter)

    async def stream(self, out: Outgoing, meter: Meter, emit: OnEvent) -> None:
        """Hand the answer's events to `emit`; the last one is `End`, or it raises."""
        format = FORMATS[out.format]
        async with self.open(out, meter) as exchange:
            await self.check(exchange, out, format)
            reader = StreamReader(out.provider.name, format, self._bounds.event)
            async for chunk in exchange.chunks():
                for event in reader.feed(chunk):
                    meter.note(event)
                    await emit(event)
                if reader.done:
                    break
            for event in reader.close():
                meter.note(event)
                await emit(event)

    async def check(
        self, exchange: Exchange, out: Outgoing, format: Format, *, anything: bool = False
    ) -> None:
        """Raise the provider's error, or BadReply for a reply of the wrong kind."""
        name, status = out.provider.name, exchange.status
        if status != 200:
            try:
                body = await exchange.read(self._bounds.error)
            except BadReply:
                body = b""
            raise failed_response(name, status, exchange.headers, body, format)
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if out.streams and kind == "application/json":
            # Some servers answer a request for a stream with a plain error and status 200.
            body = await exchange.read(self._bounds.error)
            raise failed_response(name, 502, exchange.headers, body, format)
        wanted = format.stream_type if out.streams else "application/json"
        if kind != wanted and not anything:
            shown = kind[:60] or "nothing"
            raise BadReply(f"{name} answered with {shown} instead of {wanted}", bought=True)


def decode(body: bytes, provider: str, format: Format, meter: Meter) -> Completion:
    """A reply's body as an answer; raises BadReply for anything else, whatever it is."""
    try:
        parsed: Any = json_text.load_clean(body)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{provider}'s reply is not valid JSON", bought=True) from error
    try:
        completion = format.decode_reply(fields(parsed))
    except Exception as error:
        if isinstance(parsed, dict) and (said := _error_in(cast(Json, parsed), format)):
            # An error with status 200: OpenRouter's way. Nothing was made.
            raise classify_failure(provider, said[0], said[1]) from error
        why = str(error) if isinstance(error, WireError) else f"it can't be read ({error!r})"
        raise BadReply(f"{provider}'s reply is not usable: {why}", bought=True) from error
    meter.usage, meter.finish, meter.model = completion.usage, completion.finish, completion.model
    meter.text_bytes = len(body)
    return completion


def _error_in(body: Json, format: Format) -> tuple[int, Failure] | None:
    """The provider's words for an error, and the status it should have had."""
    error = body.get("error")
    if not error or body.get("choices") or body.get("output") or body.get("content"):
        return None
    failure = format.decode_failure(body)
    if failure is None:
        return None
    code = cast(Json, error).get("code") if isinstance(error, dict) else None
    known = isinstance(code, int) and 400 <= code < 600
    return (cast(int, code) if known else 502), failure


class StreamReader:
    """Bytes of an event stream to canonical events, with every fault named.

    A character whose halves come in two deltas is handed on with the second.
    """

    def __init__(self, provider: str, format: Format, max_event: int) -> None:
        self._provider = provider
        self._parser = format.framing(max_event)
        self._decoder: StreamDecoder = format.decoder()
        self._halves: dict[int, str] = {}
        """By part: the first half of a character whose second has not come yet."""
        self.done = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events of a chunk, those before a fault included."""
        try:
            for data in self._parser.feed(chunk):
                if self.done:
                    break
                yield from self._data(data)
        except ProviderError:
            raise
        except Exception as error:  # whatever it sent, it is the provider's fault
            raise self._bad(f"can't be read: {_why(error)}") from error

    def _data(self, data: bytes) -> list[Event]:
        if data.strip() == b"[DONE]":
            self.done = True
            return []
        try:
            loaded = json_text.load(data)
        except (ValueError, RecursionError) as error:
            raise self._bad("holds broken JSON") from error
        parsed: Json = fields(loaded, "event")
        try:
            events = list(self._decoder.feed(parsed))
        except StreamFailure as failure:
            raise mid_stream(self._provider, failure) from failure
        self.done = self._decoder.last
        return self._whole_characters(events)

    def _whole_characters(self, events: list[Event]) -> list[Event]:
        """The events with each half of a character held back until its other half comes."""
        if not self._halves and all(
            event.text.isascii() for event in events if isinstance(event, PartDelta)
        ):
            return events
        whole: list[Event] = []
        for event in events:
            if isinstance(event, PartDelta):
                words = self._halves.pop(event.index, "") + event.text
                if ends_in_half(words):
                    self._halves[event.index], words = words[-1], words[:-1]
                if words:
                    whole.append(PartDelta(event.index, joined(words)))
                continue
            if isinstance(event, PartEnd | End):
                ended = [event.index] if isinstance(event, PartEnd) else [*self._halves]
                whole.extend(
                    PartDelta(index, joined(half))
                    for index in ended
                    if (half := self._halves.pop(index, ""))
                )
            whole.append(event)
        return whole

    def close(self) -> list[Event]:
        """The end of the stream: whole, or BadReply."""
        events: list[Event] = []
        try:
            for data in self._parser.close():
                if not self.done:
                    events.extend(self._data(data))
            events.extend(self._whole_characters(list(self._decoder.close())))
        except ProviderError:
            raise
        except WireError as error:
            raise self._bad(f"was cut: {error}") from error
        except Exception as error:
            raise self._bad(f"can't be read: {_why(error)}") from error
        return events

    def _bad(self, what: str) -> BadReply:
        return BadReply(f"{self._provider}'s stream {what}", bought=True)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, WireError) else repr(error)


def mid_stream(provider: str, failure: StreamFailure) -> ProviderError:
    """An error event in mid-stream: what came before it may be billed."""
    error = classify_failure(provider, failure.status, failure.failure)
    error.bought = True
    return error


def _path(out: Outgoing) -> str:
    """Where the format's requests go at this provider."""
    if out.provider.quirks.body_version is not None:  # Claude on Vertex
        verb = "streamRawPredict" if out.streams else "rawPredict"
        return f"/models/{quote(out.model, safe='@')}:{verb}"
    return FORMATS[out.format].path(out.model, out.streams)


class _Way:
    """How a provider is asked in one of its formats: the same for every call."""

    def __init__(self, out: Outgoing, path: str) -> None:
        self.provider = provider = out.provider
        if provider.api_version is not None:  # Azure's older addresses
            path = f"/deployments/{out.model}{path}?api-version={provider.api_version}"
        self.url = f"{provider.base_url}{provider.format_paths.get(out.format, '')}{path}"
        self.headers = {
            "Content-Type": out.content_type,
            "Accept": FORMATS[out.format].stream_type if out.streams else "application/json",
            **provider_headers(provider, out.format),
        }


def provider_headers(provider: Provider, format: Origin) -> dict[str, str]:
    """What every request to this provider says of itself: its key, above all."""
    headers = {
        "Accept-Encoding": "identity",
        "User-Agent": "holdfast",
        **provider.quirks.headers,
    }
    if format == "anthropic":
        headers.setdefault("anthropic-version", "2023-06-01")
    if provider.key and (name := _key_header(provider, format)) != "bearer":
        headers[name] = provider.key
    elif provider.key:
        headers["Authorization"] = f"Bearer {provider.key}"
    return headers


def _key_header(provider: Provider, format: Origin) -> str:
    """Where the key goes: Google's other format wants it elsewhere than its own."""
    if format == "gemini" and provider.cloud is None:
        return "x-goog-api-key"
    return "bearer" if provider.auth == "x-goog-api-key" else provider.auth


class Backends:
    """Every kind of provider behind one face."""

    def __init__(self, config: GatewayConfig, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, environ
        self.client = HttpClient(config.timeouts, trust_env=config.trust_env)
        self.upstream = Upstream(self.client, config.timeouts, config.bounds)
        self._signed_in: dict[tuple[str, Origin], Provider] = {}
        """By name and format: a provider of a cloud with the credentials it was last asked with."""
        self._aws: AwsCredentials | None = None
        self._google: GoogleCredentials | None = None

    async def complete(
        self,
        candidate: Candidate,
        request: Request,
        key: str | None,
        meter: Meter,
        *,
        body: bytes | None = None,
    ) -> Completion:
        """The whole answer; `body` is the request encoded already, if it is."""
        if candidate.provider.kind == "scripted":
            model = scripted.find(candidate.model, self._config.scripted)
            request = request.for_model(candidate.model)
            return await scripted.complete(model, request, meter, self._config.timeouts)
        if request.stream:
            request = replace(request, stream=False)
        out = await self._outgoing(candidate, request, key, body)
        return await self.upstream.complete(out, meter)

    async def stream(
        self,
        candidate: Candidate,
        request: Request,
        key: str | None,
        meter: Meter,
        *,
        emit: OnEvent,
        body: bytes | None = None,
    ) -> None:
        """The answer's events, handed to `emit`."""
        if candidate.provider.kind == "scripted":
            model = scripted.find(candidate.model, self._config.scripted)
            request = request.for_model(candidate.model)
            await scripted.stream(model, request, meter, self._config.timeouts, emit=emit)
            return
        if not request.stream:
            request = replace(request, stream=True)
        out = await self._outgoing(candidate, request, key, body)
        await self.upstream.stream(out, meter, emit)

    async def _outgoing(
        self, candidate: Candidate, request: Request, key: str | None, body: bytes | None
    ) -> Outgoing:
        provider = candidate.provider
        if provider.kind == "local" or provider.cloud is not None:
            provider = await self.ready(candidate)
        format: Origin = provider.formats[0]
        data = dumps(encode(candidate, request, format)) if body is None else body
        return Outgoing(provider, candidate.model, format, data, request.stream, key, {})

    async def ready(self, candidate: Candidate) -> Provider:
        """The provider, its server started if it is ours, signed in where it is a cloud's."""
        provider = candidate.provider
        if provider.kind == "local":
            return await SERVER.ready(provider, candidate.model)
        if provider.cloud is None or provider.key is not None:
            return provider
        # Their modules are loaded here: most processes have no business in a cloud.
        if provider.cloud == "aws":
            from holdfast.gateway.aws import AwsCredentials

            self._aws = self._aws or AwsCredentials(self._environ, self.client)
            keys, token = await self._aws.keys(), None
        else:
            from holdfast.gateway.google_credentials import GoogleCredentials

            self._google = self._google or GoogleCredentials(self._environ, self.client)
            keys, token = None, await self._google.token()
        which = (provider.name, provider.formats[0])
        known = self._signed_in.get(which)
        if known is None or (known.aws_keys, known.key) != (keys, token):
            known = replace(provider, aws_keys=keys, key=token)
            self._signed_in[which] = known
        return known


def encode(candidate: Candidate, request: Request, format: Origin) -> Json:
    """The request as this provider wants it; raises UsageError for what it can't be asked."""
    check_target(request, format)
    quirks = candidate.provider.quirks
    try:
        return FORMATS[format].encode_request(request, quirks, model=candidate.model)
    except WireError as error:
        raise UsageError(str(error)) from error
