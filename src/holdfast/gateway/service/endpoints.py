"""Endpoints beside the conversation: embeddings, and counting a request's tokens.

Their bodies go to a provider of the same format as they are and come back as they are: there is
nothing to translate. They are calls like any other, with record, price, budget and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import json_text
from holdfast.errors import BadReply, UsageError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json, WireError, count, dumps, fields
from holdfast.gateway.input_bounds import input_bound
from holdfast.gateway.messages import Origin
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import Usage
from holdfast.gateway.service.responses import BufferSink, Headers, Sink, returned_headers
from holdfast.gateway.upstream import Backends, Outgoing

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
