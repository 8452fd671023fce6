"""Where a canonical request goes: over HTTP, to the local model, or to a script."""

from __future__ import annotations

from dataclasses import replace

from holdfast.gateway import scripted
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.json_fields import Json, dumps
from holdfast.gateway.local import SERVER
from holdfast.gateway.messages import Origin
from holdfast.gateway.meter import Meter
from holdfast.gateway.providers import Provider
from holdfast.gateway.reply import Completion
from holdfast.gateway.request import Request
from holdfast.gateway.route import Candidate
from holdfast.gateway.transport import Transport
from holdfast.gateway.upstream import Emit, Outgoing, Upstream


class Backends:
    """Every kind of provider behind one face."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self.transport = Transport(config.timeouts, trust_env=config.trust_env)
        self.upstream = Upstream(self.transport, config.timeouts, config.bounds)

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
        emit: Emit,
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
        if provider.kind == "local":
            provider = await self.ready(candidate)
        format: Origin = provider.formats[0]
        data = dumps(encode(candidate, request, format)) if body is None else body
        return Outgoing(provider, candidate.model, format, data, request.stream, key, {})

    async def ready(self, candidate: Candidate) -> Provider:
        """The provider, its server started if it is ours."""
        if candidate.provider.kind == "local":
            return await SERVER.ready(candidate.provider, candidate.model)
        return candidate.provider


def encode(candidate: Candidate, request: Request, format: Origin) -> Json:
    """The request as this provider wants it."""
    quirks = candidate.provider.quirks
    return FORMATS[format].encode_request(request, quirks, model=candidate.model)
