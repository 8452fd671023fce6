"""The gateway: one place through which model calls go, whoever makes them.

Holds configuration, providers, prices, the ledger and the connections; the functions of
`calls.py` and the HTTP service are faces of it. `LibraryCall` is the library's work for the call
loop: a canonical request, a canonical answer.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from holdfast.gateway import addresses
from holdfast.gateway.accounting import Meter
from holdfast.gateway.call_loop import Call, CallLoop
from holdfast.gateway.canonical_json import completion_from_text, completion_text, request_text
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.formats.json_fields import dumps
from holdfast.gateway.hooks import Alert, Alerts, Hook
from holdfast.gateway.input_bounds import HIDDEN, unbounded
from holdfast.gateway.input_bounds import input_bound as bound_of
from holdfast.gateway.messages import FilePart, Request
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import Candidate, Provider, Routes, resolve_providers
from holdfast.gateway.reply import Assembler, Completion, Event, OnEvent, Reply, Usage
from holdfast.gateway.secrets import Redactor
from holdfast.gateway.upstream import Backends, encode
from holdfast.records.calls import NANO, CallEnd, CallStart
from holdfast.session import CurrentStep, current_step, default_store, opened_store
from holdfast.store import opener
from holdfast.store.ledger import Ledger


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
        request = self._request
        if self._declared is not None or not candidate.provider.formats:
            return None
        if not (request.extra or request.provider_tools or _has_file(request)):
            return None  # the rest of the canonical form has no such things
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


def _has_file(request: Request) -> bool:
    return any(isinstance(part, FilePart) for message in request.messages for part in message.parts)


_log = logging.getLogger("holdfast.gateway")
_STEPS_REMEMBERED = 4096


class Gateway:
    """Calls models by name, records every call, keeps budgets.

    `ledger` defaults to the store this process has open, or the default one (`holdfast.session`).
    """

    def __init__(
        self,
        config: GatewayConfig | None = None,
        *,
        ledger: Ledger | None = None,
        environ: Mapping[str, str] | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        environ = os.environ if environ is None else environ
        self.config = config or GatewayConfig.load(environ)
        self.providers: dict[str, Provider] = resolve_providers(self.config, environ)
        self.routes = Routes(self.config, self.providers)
        self.prices = PriceBook(self.config.prices)
        self.ledger: Ledger = ledger or opener.ledger(
            _store_path(environ), replays_for=self.config.replays_for
        )
        held = self.providers.values()
        keys = [key for one in held for key in (one.key, *one.keys) if key]
        self.redact = Redactor(keys, self.config.redact)
        self.backends = Backends(self.config, environ)
        self.loop = CallLoop(self.config, self.ledger, self.prices, self.redact)
        self.loop.quickness = self.routes
        self.hooks = tuple(hooks)
        self.loop.ended = self.ended
        self.alerts = Alerts(self.config, self.ledger, self.backends.client, self._alerted)
        self._seen: OrderedDict[int, tuple[CurrentStep, Counter[str]]] = OrderedDict()

    async def call(
        self,
        request: Request,
        *,
        tags: tuple[str, ...] = (),
        key: str | None = None,
        on_event: OnEvent | None = None,
        budget_wait: float | None = None,
        input_bound: int | None = None,
        cache: bool = False,
    ) -> Reply:
        """Make one call; with `on_event` its events are handed on as they come.

        With `cache` an equal request's earlier answer is given, as long as replies are kept.
        """
        for hook in self.hooks:
            request = await hook.before(request, tags)
        step = current_step()
        model = self.config.steps.get(step.step, request.model) if step else request.model
        candidates = self.routes.candidates(model)
        if not self.config.private_image_urls:
            addresses.check_messages(request.messages)
        asked = request_text(request)
        digest = hashlib.blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        if cache:
            key = f"cache:{model}:{digest}"
        elif key is None and step is not None:
            key = self._step_key(step, digest)
        work = LibraryCall(request, self.backends, on_event=on_event, input_bound=input_bound)
        call = Call(
            model, "holdfast", candidates, digest,
            prompt=self.redact(asked) if self.config.keep_content else None,
            key=key, sent_key=None if cache else key, step=step, tags=tags,
            budget_wait=budget_wait, on_unknown="again" if cache else None,
        )  # fmt: skip
        made = await self.loop.make(call, work)
        if made.replay is not None:
            return _reply(made.start, made.end, completion_from_text(made.replay), replayed=True)
        assert work.completion is not None
        return _reply(made.start, made.end, work.completion)

    async def ended(self, start: CallStart, end: CallEnd) -> None:
        """A call has ended and is on record: tell the hooks, and warn of what it brought near."""
        for hook in self.hooks:
            try:
                await hook.after(start, end)
            except Exception:  # noqa: BLE001  the answer is paid for, and its caller gets it
                _log.exception("a hook failed after call %s", start.id)
        self.alerts.look(start)

    async def _alerted(self, alert: Alert) -> None:
        for hook in self.hooks:
            await hook.alerted(alert)

    def _step_key(self, step: CurrentStep, digest: str) -> str:
        """The call's key: its step and attempt, what is asked, and how often it was asked before.

        A worker that died leaves its attempt to another, which makes the same keys and finds
        what is finished. A step that failed and is tried again is a new attempt, with new keys:
        it may have failed because of the answer.
        """
        seen = self._seen.get(id(step))
        if seen is None:
            seen = self._seen[id(step)] = (step, Counter())
            if len(self._seen) > _STEPS_REMEMBERED:
                self._seen.popitem(last=False)
        seen[1][digest] += 1
        parts = (step.idempotency_key, str(step.attempt), digest, str(seen[1][digest]))
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=20).hexdigest()

    async def close(self) -> None:
        """Close connections and the ledger, after the warnings that are on their way."""
        await self.alerts.drain()
        await self.backends.client.close()
        self.ledger.close()


def _store_path(environ: Mapping[str, str]) -> Path | str:
    named = environ.get("HOLDFAST_STORE")
    return named if named == ":memory:" else opened_store() or default_store(environ)


def _reply(
    start: CallStart, end: CallEnd, completion: Completion, *, replayed: bool = False
) -> Reply:
    return Reply(
        call_id=start.id,
        parts=completion.parts,
        finish=completion.finish,
        model=start.model,
        served_by=f"{end.provider}/{end.served}",
        usage=Usage(
            input=end.input_tokens,
            output=end.output_tokens,
            cached=end.cached_tokens,
            cache_write=end.cache_write_tokens,
            reasoning=end.reasoning_tokens,
            estimated=end.estimated,
        ),
        cost=None if end.cost is None else Decimal(end.cost) / NANO,
        latency=end.latency,
        first_token=end.first_token,
        attempts=end.attempts,
        replayed=replayed,
    )
