"""The gateway: one place through which model calls go, whoever makes them.

Holds configuration, providers, prices, the ledger and the connections; the functions of
`calls.py` and the HTTP service are faces of it.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, OrderedDict
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from holdfast.gateway import addresses
from holdfast.gateway.call_loop import Call, CallLoop
from holdfast.gateway.canonical_json import completion_from_text, request_text
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.events import OnEvent
from holdfast.gateway.library_call import LibraryCall
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import Provider, Routes, resolve_providers
from holdfast.gateway.redact import Redactor
from holdfast.gateway.reply import Completion, Reply, Usage
from holdfast.gateway.request import Request
from holdfast.gateway.upstream import Backends
from holdfast.records.calls import NANO, CallEnd, CallStart
from holdfast.session import CurrentStep, current_step, default_store, opened_store
from holdfast.store import opener
from holdfast.store.ledger import Ledger

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
    ) -> None:
        environ = os.environ if environ is None else environ
        self.config = config or GatewayConfig.load(environ)
        self.providers: dict[str, Provider] = resolve_providers(self.config, environ)
        self.routes = Routes(self.config, self.providers)
        self.prices = PriceBook(self.config.prices)
        self.ledger: Ledger = ledger or opener.ledger(
            _store_path(environ), replays_for=self.config.replays_for
        )
        keys = [provider.key for provider in self.providers.values() if provider.key]
        self.redact = Redactor(keys, self.config.redact)
        self.backends = Backends(self.config)
        self.loop = CallLoop(self.config, self.ledger, self.prices, self.redact)
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
    ) -> Reply:
        """Make one call; with `on_event` its events are handed on as they come."""
        step = current_step()
        model = self.config.steps.get(step.step, request.model) if step else request.model
        candidates = self.routes.candidates(model)
        if not self.config.private_image_urls:
            addresses.check_messages(request.messages)
        asked = request_text(request)
        digest = hashlib.blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        if key is None and step is not None:
            key = self._step_key(step, digest)
        work = LibraryCall(request, self.backends, on_event=on_event, input_bound=input_bound)
        call = Call(
            model, "holdfast", candidates, digest,
            prompt=self.redact(asked) if self.config.keep_content else None,
            key=key, sent_key=key, step=step, tags=tags, budget_wait=budget_wait,
        )  # fmt: skip
        made = await self.loop.make(call, work)
        if made.replay is not None:
            return _reply(made.start, made.end, completion_from_text(made.replay), replayed=True)
        assert work.completion is not None
        return _reply(made.start, made.end, work.completion)

    def _step_key(self, step: CurrentStep, digest: str) -> str:
        """The call's key: its step and attempt, what is asked, and the how-manieth time.

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
        """Close connections and the ledger."""
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
