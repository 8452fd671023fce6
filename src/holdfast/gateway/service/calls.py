"""Calls on behalf of HTTP clients: those that end with their client, and those that outlive it.

A call with an `Idempotency-Key` belongs to the gateway: it goes on when its client is gone, a
client that comes back with the same key and request reads the same answer from its beginning,
and one that comes after it has ended gets the kept answer. A call without one is stopped when
its client goes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.durations import seconds
from holdfast.errors import CallMismatch, HoldfastError, UsageError
from holdfast.gateway.call_loop import Call
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply_encryption import key_hash
from holdfast.gateway.service.endpoints import Endpoint, EndpointCall
from holdfast.gateway.service.http_call import FORWARDED, HttpCall
from holdfast.gateway.service.responses import BufferSink, ClientSink, Headers, Sink, unpacked
from holdfast.records.calls import VirtualKey

Receive = Callable[[], Awaitable[dict[str, Any]]]
_MAX_KEY = 255
_LOOK_AFTER = 0.02


@dataclass(frozen=True, slots=True)
class Client:
    """One client's request."""

    key: VirtualKey
    headers: dict[str, str]
    format: Format
    body: Json
    raw: bytes
    model: str
    endpoint: Endpoint | None = None
    """What is asked for, if it is no conversation."""

    @property
    def call_key(self) -> str | None:
        """The client's idempotency key, its own: another client's equal key is another key."""
        given = self.headers.get("idempotency-key")
        if given is None:
            return None
        if not 0 < len(given) <= _MAX_KEY:
            raise UsageError(f"an Idempotency-Key has 1 to {_MAX_KEY} characters")
        return f"{self.key.id}:{given}"

    @property
    def budget_wait(self) -> float | None:
        """How long the client wants to wait for room in a budget; at most a day."""
        given = self.headers.get("x-holdfast-budget-wait")
        if given is None:
            return None
        try:
            return min(seconds(float(given)), 86400.0)
        except ValueError:
            raise UsageError("x-holdfast-budget-wait should be a number of seconds") from None

    @property
    def input_bound(self) -> int | None:
        """The most input tokens, where the client says so."""
        given = self.headers.get("x-holdfast-input-bound")
        if given is None:
            return None
        if not given.isdecimal() or len(given) > 12:
            raise UsageError("x-holdfast-input-bound should be a number of tokens")
        return int(given)

    @property
    def on_unknown(self) -> Literal["again"] | None:
        """What the client wants done about an earlier call whose outcome is unknown."""
        return "again" if self.headers.get("x-holdfast-on-unknown") == "again" else None

    def request_hash(self) -> str:
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"))
        what = self.format.name if self.endpoint is None else self.endpoint.name
        return hashlib.blake2b(f"{what}\n{text}".encode(), digest_size=20).hexdigest()


@dataclass(slots=True)
class InFlight:
    """A keyed call under way in this process."""

    request_hash: str
    sink: BufferSink
    task: asyncio.Task[None]


class ServiceCalls:
    """Makes the calls, and keeps those in flight by key."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._in_flight: dict[str, InFlight] = {}

    async def serve(
        self, client: Client, candidates: Sequence[Candidate], receive: Receive, sink: ClientSink
    ) -> None:
        """Answer one client."""
        if client.call_key is None:
            await self._serve_unkeyed(client, candidates, receive, sink)
        else:
            await self._serve_keyed(client, candidates, client.call_key, sink)

    # --- without a key: the call ends with its client -----------------------------------------

    async def _serve_unkeyed(
        self, client: Client, candidates: Sequence[Candidate], receive: Receive, sink: ClientSink
    ) -> None:
        watch = _Disconnection(receive)
        try:
            await self._make(client, candidates, sink, call_key=None)
        except asyncio.CancelledError:
            if not watch.came:
                raise
            watch.forgive()
        finally:
            watch.close()

    # --- with a key: the call outlives its client ----------------------------------------------

    async def _serve_keyed(
        self, client: Client, candidates: Sequence[Candidate], key: str, sink: ClientSink
    ) -> None:
        name, asked = key_hash(key), client.request_hash()
        running = self._in_flight.get(name)
        more: Headers = {}
        if running is None:
            running = self._start(client, candidates, key, name=name, asked=asked)
        elif running.request_hash != asked:
            raise CallMismatch(
                "this Idempotency-Key is in use for another request",
                hint="use one key per request; a changed request needs a new one",
            )
        else:
            more = {"x-holdfast-attached": "true"}
        if await _begins(running):
            await running.sink.read_to(sink, more)
        else:
            await asyncio.shield(running.task)  # raises what the call failed with

    def _start(
        self, client: Client, candidates: Sequence[Candidate], key: str, *, name: str, asked: str
    ) -> InFlight:
        buffer = BufferSink()

        async def run() -> None:
            try:
                await self._make(client, candidates, buffer, call_key=key)
            finally:
                self._in_flight.pop(name, None)
                await buffer.end()

        task = asyncio.create_task(run())
        task.add_done_callback(_look_at)
        running = self._in_flight[name] = InFlight(asked, buffer, task)
        return running

    # --- both --------------------------------------------------------------------------------

    async def _make(
        self,
        client: Client,
        candidates: Sequence[Candidate],
        sink: Sink,
        *,
        call_key: str | None,
    ) -> None:
        gateway, keeps = self._gateway, self._gateway.config.keep_content
        work = self._work(client, sink)
        work.check(candidates)
        call = Call(
            client.model, client.endpoint.name if client.endpoint else client.format.name,
            candidates,
            "" if call_key is None else client.request_hash(),
            prompt=gateway.redact(client.raw.decode("utf-8", "replace")) if keeps else None,
            key=call_key, sent_key=call_key and _outward(call_key),
            run_id=client.key.run_id, api_key=client.key.id or None, tags=client.key.tags,
            budget_wait=client.budget_wait, wait_for_end=call_key is not None,
            on_unknown=client.on_unknown,
        )  # fmt: skip
        try:
            made = await gateway.loop.make(call, work)
        except HoldfastError as error:
            if not sink.started:
                raise
            if work.streams and not work.error_sent:
                words = error.http_status, error.kind, error.message
                await sink.write(client.format.stream_failure(*words))
        else:
            if made.replay is not None:
                status, headers, body = unpacked(made.replay)
                await sink.start(status, {**headers, "x-holdfast-replayed": "true"})
                await sink.write(body)
        await sink.end()

    def _work(self, client: Client, sink: Sink) -> HttpCall | EndpointCall:
        gateway = self._gateway
        forward = {name: value for name, value in client.headers.items() if name in FORWARDED}
        if client.endpoint is not None:
            return EndpointCall(
                client.endpoint, client.body, client.raw, sink, gateway.backends, forward=forward
            )
        return HttpCall(
            client.format, client.body, client.raw, sink, gateway.backends,
            bounds=gateway.config.bounds, forward=forward,
            keeps_content=gateway.config.keep_content, input_bound=client.input_bound,
        )  # fmt: skip

    async def drain(self) -> None:
        """Wait for the keyed calls in flight: they are paid for."""
        tasks = [running.task for running in self._in_flight.values()]
        if tasks:
            await asyncio.wait(tasks)


async def _begins(running: InFlight) -> bool:
    """Wait until the answer begins (True) or the call ends without one (False)."""
    while not running.sink.started and not running.sink.ended:
        await running.sink.news()
    return running.sink.started


class _Disconnection:
    """Stops the current task when its client goes; most calls are over before it is looked for."""

    def __init__(self, receive: Receive) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._receive, self._call = receive, call
        self._task: asyncio.Task[None] | None = None
        self._timer = call.get_loop().call_later(_LOOK_AFTER, self._look)
        self.came = False

    def _look(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.came = True
        self._call.cancel()

    def forgive(self) -> None:
        """It was us who cancelled the call: no more to it."""
        self._call.uncancel()

    def close(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def _outward(call_key: str) -> str:
    """The key sent on to providers: it tells them nothing of ours."""
    return hashlib.blake2b(call_key.encode(), digest_size=16).hexdigest()


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of the error, so that one nobody waited for is not shouted about."""
    if not task.cancelled():
        task.exception()
