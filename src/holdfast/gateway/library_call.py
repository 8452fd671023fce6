"""The library's calls as work for the call loop: a canonical request, a canonical answer."""

from __future__ import annotations

from dataclasses import replace

from holdfast.gateway.accounting import Meter
from holdfast.gateway.canonical_json import completion_text
from holdfast.gateway.events import Assembler, Event, OnEvent
from holdfast.gateway.formats.json_fields import dumps
from holdfast.gateway.input_bounds import HIDDEN, unbounded
from holdfast.gateway.input_bounds import input_bound as bound_of
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import Completion
from holdfast.gateway.request import Request
from holdfast.gateway.upstream import Backends, encode


class LibraryCall:
    """One library call; with `on_event` it streams."""

    def __init__(
        self,
        request: Request,
        backends: Backends,
        *,
        on_event: OnEvent | None = None,
        input_bound: int | None = None,
    ) -> None:
        streams = on_event is not None
        self._request = request if request.stream == streams else replace(request, stream=streams)
        self._backends = backends
        self._on_event = on_event
        self._declared = input_bound
        self._encodings: list[tuple[Candidate, bytes | None, int]] = []
        self.completion: Completion | None = None

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        _, _, bound = self._encoded(candidate)
        asked = self._request.max_tokens
        if asked is None and candidate.provider.formats[:1] == ("anthropic",):
            asked = candidate.provider.quirks.default_max_tokens
            asked += self._request.thinking_tokens or 0
        return max(bound, self._declared or 0), asked

    def unbounded(self, candidate: Candidate) -> str | None:
        if self._declared is not None or not self._request.extra or not candidate.provider.formats:
            return None  # the canonical form has no such things
        return unbounded(encode(candidate, self._request, candidate.provider.formats[0]))

    def _encoded(self, candidate: Candidate) -> tuple[Candidate, bytes | None, int]:
        """The body for this provider, if it wants one, and its bound of input tokens."""
        for found in self._encodings:
            if found[0] is candidate:
                return found
        formats = candidate.provider.formats
        if formats:
            body = encode(candidate, self._request, formats[0])
            data = dumps(body)
            bound = bound_of(body if b"image" in data else None, len(data))
            found = candidate, data, bound
        else:
            said = sum(len(m.text.encode()) + 16 for m in self._request.messages)
            found = candidate, None, HIDDEN + said
        self._encodings.append(found)
        return found

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        request, body = self._request, self._encoded(candidate)[1]
        meter.thinks = bool(request.thinking_tokens) or request.effort not in (None, "none")
        if cap is not None:
            request, body = replace(request, max_tokens=cap), None
        if self._on_event is None:
            completion = await self._backends.complete(candidate, request, key, meter, body=body)
            meter.emit()
            self.completion = completion
            return
        assembler, on_event = Assembler(), self._on_event

        async def emit(event: Event) -> None:
            meter.emit()
            assembler.add(event)
            await on_event(event)

        await self._backends.stream(candidate, request, key, meter, emit=emit, body=body)
        self.completion = assembler.completion()

    def begin(self, call_id: str) -> None:
        pass

    def reply(self) -> str | None:
        return None if self.completion is None else completion_text(self.completion)

    def replay(self) -> bytes | None:
        return None if self.completion is None else completion_text(self.completion).encode()
