"""The gateway: one place through which model calls go, whoever makes them.

Holds configuration, providers, prices, the ledger and the connections; the functions of
`calls.py` and the HTTP service are faces of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from holdfast.errors import OutcomeUnknown
from holdfast.gateway import addresses
from holdfast.gateway.backends import Backends
from holdfast.gateway.canonical_json import completion_from_text, request_text
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.dispatch import Dispatcher
from holdfast.gateway.ledger import Ledger
from holdfast.gateway.library_call import LibraryCall, OnEvent
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import Provider, resolve_providers
from holdfast.gateway.redact import Redactor
from holdfast.gateway.reply import Completion, Reply, Usage
from holdfast.gateway.reply_encryption import decrypt, key_hash, reply_key
from holdfast.gateway.request import Request
from holdfast.gateway.route import Routes
from holdfast.ids import new_id
from holdfast.records.calls import NANO, CallEnd, CallStart
from holdfast.session import CurrentStep, current_step, default_store, opened_store
from holdfast.store.sqlite.ledger import Earlier, SqliteLedger

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
        self.ledger: Ledger = ledger or SqliteLedger(
            _store_path(environ), replays_for=self.config.replays_for
        )
        keys = [provider.key for provider in self.providers.values() if provider.key]
        self.redact = Redactor(keys, self.config.redact)
        self.backends = Backends(self.config)
        self.dispatcher = Dispatcher(self.config, self.ledger, self.prices, self.redact)
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
        secret = None if key is None else reply_key(key, digest.encode())
        keep = self.redact if self.config.keep_content else None
        work = LibraryCall(
            request, self.backends, redact=keep, secret=secret, on_event=on_event,
            input_bound=input_bound,
        )  # fmt: skip
        while True:
            start = CallStart(
                id=new_id("call"),
                model=model,
                format="holdfast",
                started_at=time.time(),
                key=None if key is None else key_hash(key),
                request_hash=digest,
                run_id=step.run_id if step else None,
                workflow=step.workflow if step else None,
                step=step.step if step else None,
                step_key=step.key if step else None,
                attempt=step.attempt if step else None,
                tags=tags,
                prompt=keep(asked) if keep else None,
            )
            end = await self.dispatcher.run(
                start, candidates, work, idempotency_key=key, durable=key is not None,
                budget_wait=budget_wait,
            )  # fmt: skip
            if isinstance(end, CallEnd):
                assert work.completion is not None
                return _reply(start, end, work.completion)
            # A gateway behind us keeps calls by key itself: asking it again takes up the same one.
            behind = all(candidate.provider.name == "holdfast" for candidate in candidates)
            found = await self.resolve_earlier(end, taken_up=behind)
            if found is not None:
                return self._replayed(found, secret)

    async def resolve_earlier(self, earlier: Earlier, *, taken_up: bool = False) -> Earlier | None:
        """An earlier call with the same key, once it is whole; None: make the call now."""
        call = earlier.call
        if call.status == "completed" and earlier.replay is not None:
            return earlier
        if call.status == "unknown":
            if self.config.on_unknown == "refuse" and not taken_up:
                raise OutcomeUnknown(
                    f"call {call.start.id} was cut short by the death of its process;"
                    " whether it was paid for is unknown",
                    hint='decide: use a new key, or set on_unknown = "again"',
                )
            await self.ledger.supersede(call.start.id, release=taken_up)
            return None
        if call.status == "completed":  # its reply is no longer kept
            await self.ledger.supersede(call.start.id)
            return None
        await asyncio.sleep(0.05)  # another process is at it: ask again
        return None

    def _replayed(self, earlier: Earlier, secret: bytes | None) -> Reply:
        assert secret is not None and earlier.replay is not None and earlier.call.end is not None
        completion = completion_from_text(decrypt(secret, earlier.replay))
        return _reply(earlier.call.start, earlier.call.end, completion, replayed=True)

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
        await self.backends.transport.close()
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
