"""The ASGI application: every format where its own clients look for it, and the endpoints beside
conversations (`service/endpoints.py`).

Plain ASGI, so that any server runs it and any application can mount it. Who may call is settled
by virtual keys; where calls go is settled by the gateway's configuration, never by the client.

A call with an `Idempotency-Key` belongs to the gateway: it goes on when its client is gone, a
client that comes back with the same key and request reads the same answer from its beginning,
and one that comes after it has ended gets the kept answer. A call without one is stopped when
its client goes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs

from holdfast import json_text
from holdfast.durations import seconds
from holdfast.errors import CallMismatch, HoldfastError, KeyRefused, PayloadTooLarge, UsageError
from holdfast.gateway import addresses
from holdfast.gateway.call_loop import Call
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json, WireError, dumps, fields
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.keys import KeyRing, allows
from holdfast.gateway.model_list import list_models
from holdfast.gateway.providers import Candidate
from holdfast.gateway.secrets import key_hash
from holdfast.gateway.service.conversations import Conversations
from holdfast.gateway.service.endpoints import (
    Asked,
    Endpoint,
    EndpointCall,
    asked_for,
    form_fields,
)
from holdfast.gateway.service.http_call import FORWARDED, HttpCall
from holdfast.gateway.service.http_response import (
    ArraySink,
    BufferSink,
    ClientSink,
    Headers,
    Send,
    Sink,
    unpacked,
)
from holdfast.records.calls import VirtualKey

Receive = Callable[[], Awaitable[dict[str, Any]]]
_MAX_KEY = 255
_LOOK_AFTER = 0.02
MAX_BODY = 64 * 1024 * 1024
_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_ANYONE = VirtualKey("", "open", "", 0.0)
_NO_RETRY = (400, 401, 402, 404, 409, 413, 422)


@dataclass(frozen=True, slots=True)
class Client:
    """One client's request."""

    key: VirtualKey
    headers: dict[str, str]
    format: Format
    body: Json
    raw: bytes
    model: str
    streams: bool
    endpoint: Endpoint | None = None
    """What is asked for, if it is no conversation."""
    content_type: str = "application/json"

    @property
    def call_key(self) -> str | None:
        """The client's idempotency key, its own: another client's equal key is another key."""
        given = self.headers.get("idempotency-key")
        if given is None:
            return f"{self.key.id}:cache:{self.request_hash()}" if self.wants_cache else None
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
    def wants_cache(self) -> bool:
        """Whether the answer that an equal request got before will do."""
        return self.headers.get("x-holdfast-cache", "").lower() == "true"

    @property
    def on_unknown(self) -> Literal["again"] | None:
        """What the client wants done about an earlier call whose outcome is unknown."""
        again = self.headers.get("x-holdfast-on-unknown") == "again" or self.wants_cache
        return "again" if again else None

    def request_hash(self) -> str:
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"))
        what = self.format.name if self.endpoint is None else self.endpoint.name
        if self.content_type != "application/json":
            text = hashlib.blake2b(self.raw, digest_size=20).hexdigest()
        if "model" not in self.body:
            what = f"{what} {self.model} {self.streams}"
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
        asked = client.raw
        if gateway.hooks and isinstance(work, HttpCall):
            asked = await work.pass_by(gateway.hooks, client.key.tags)
        work.check(candidates)
        call = Call(
            client.model, client.endpoint.name if client.endpoint else client.format.name,
            candidates,
            "" if call_key is None else client.request_hash(),
            prompt=gateway.redact(asked.decode("utf-8", "replace")) if keeps else None,
            key=call_key,
            sent_key=None if call_key is None or client.wants_cache else _outward(call_key),
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
                client.endpoint, client.body, client.raw, sink, gateway.backends,
                forward=forward, model=client.model, content_type=client.content_type,
                input_bound=client.input_bound,
            )  # fmt: skip
        return HttpCall(
            client.format, client.body, client.raw, sink, gateway.backends,
            bounds=gateway.config.bounds, forward=forward,
            keeps_content=gateway.config.keep_content, input_bound=client.input_bound,
            model=client.model, streams=client.streams,
            conversations=self.conversations(client.key),
        )  # fmt: skip

    def conversations(self, key: VirtualKey) -> Conversations:
        """The answers that clients with this key go on from."""
        seconds = self._gateway.config.responses_for
        return Conversations(self._gateway.ledger, key.id, seconds)

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


class GatewayApp:
    """The HTTP face of a gateway. With `open_to_all` no key is asked for: loopback only."""

    def __init__(self, gateway: Gateway, *, open_to_all: bool = False) -> None:
        self._gateway = gateway
        self._open = open_to_all
        self._ring = KeyRing(gateway.ledger)
        self.calls = ServiceCalls(gateway)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(self, receive, send)
            return
        if scope["type"] != "http":
            return
        sink = ClientSink(send)
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
        asked = asked_for(path) if scope["method"] == "POST" else None
        format = asked.format if asked else FORMATS["chat"]
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            if asked is not None and asked.format.name == "gemini" and "key" in query:
                headers.setdefault("x-goog-api-key", query["key"][0])
            if asked is not None and asked.may_be_array and query.get("alt") != ["sse"]:
                sink = ArraySink(send, self._gateway.config.bounds.event)
            await self._route(scope["method"], path, asked, headers, receive, sink)
        except _ClientGone:
            pass
        except HoldfastError as error:
            if sink.started:
                raise
            await _send_error(sink, format, error)

    async def _route(
        self,
        method: str,
        path: str,
        asked: Asked | None,
        headers: dict[str, str],
        receive: Receive,
        sink: ClientSink,
    ) -> None:
        if path == "/healthz":
            await sink.whole(200, {"content-type": "application/json"}, b'{"ok":true}')
            return
        key = await self._key(headers)
        if asked is not None:
            await self._call(asked, key, headers, receive, sink)
        elif path == "/v1/models" and method == "GET":
            body = dumps(self._models(key))
            await sink.whole(200, {"content-type": "application/json"}, body)
        elif path.startswith("/v1/models/") and method == "GET":
            name = path.removeprefix("/v1/models/")
            body = dumps(_model(name, self._candidates(name, key)[0].provider.name))
            await sink.whole(200, {"content-type": "application/json"}, body)
        else:
            body = dumps(FORMATS["chat"].encode_failure(404, "not_found", f"{method} {path}"))
            await sink.whole(404, {"content-type": "application/json"}, body)

    async def _key(self, headers: dict[str, str]) -> VirtualKey:
        if self._open:
            if "origin" in headers or "sec-fetch-site" in headers:
                raise KeyRefused("a gateway without keys does not answer web pages")
            return _ANYONE
        bearer = headers.get("authorization", "")
        secret = bearer[7:].strip() if bearer[:7].lower() == "bearer " else ""
        secret = secret or _signer(bearer)
        given = secret or next((headers[name] for name in _KEY_HEADERS if name in headers), "")
        return await self._ring.check(given.strip())

    async def _call(
        self,
        asked: Asked,
        key: VirtualKey,
        headers: dict[str, str],
        receive: Receive,
        sink: ClientSink,
    ) -> None:
        raw = await _read(receive, headers)
        kind = headers.get("content-type", "")
        form = asked.endpoint is not None and kind.lower().startswith("multipart/form-data")
        body = form_fields(raw, kind) if form else _parse(raw)
        has_address = b"url" in raw
        if asked.format.name == "gemini":
            from holdfast.gateway.formats.gemini import in_camel_case  # loaded with the format

            body, has_address = in_camel_case(body), True
        addresses.check_fields(body)
        if has_address and not self._gateway.config.private_image_urls:
            addresses.check_body(body)
        if asked.format.name == "anthropic" and "anthropic_version" in body:
            # A client of Claude on Vertex; who else is asked knows neither field nor address.
            body = {name: value for name, value in body.items() if name != "anthropic_version"}
            if asked.endpoint is None:
                body |= {"model": asked.model or body.get("model"), "stream": asked.streams}
            raw = dumps(body)
        if asked.format.name == "responses" and asked.endpoint is None:
            kept = self.calls.conversations(key)
            if kept.keeps and (whole := await kept.whole(body)) is not body:
                body, raw = whole, dumps(whole)
        model = asked.model if asked.model is not None else body.get("model")
        if model is None and asked.endpoint is not None:
            model = asked.endpoint.default_model
        if not isinstance(model, str):
            raise UsageError("model should be a string")
        if asked.whose is not None and "/" not in model:
            model = f"{asked.whose}/{model}"
        streams = bool(body.get("stream")) if asked.streams is None else asked.streams
        client = Client(
            key, headers, asked.format, body, raw, model, streams, asked.endpoint,
            content_type=kind if form else "application/json",
        )  # fmt: skip
        await self.calls.serve(client, self._candidates(model, key), receive, sink)

    def _candidates(self, asked: str, key: VirtualKey) -> list[Candidate]:
        """Who may serve the model, as far as the key reaches."""
        found = self._gateway.routes.candidates(asked)
        if allows(key, asked):
            return found
        reached = [candidate for candidate in found if allows(key, candidate.ref)]
        if not reached:
            raise _not_for_key(key, asked)
        return reached

    def _models(self, key: VirtualKey) -> Json:
        data = [
            _model(found.name, found.provider)
            for found in list_models(self._gateway)
            if found.why_not is None and allows(key, found.name)
        ]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return {"object": "list", "data": data, "has_more": False, **ends}


def _model(name: str, provider: str) -> Json:
    """A model as OpenAI's and Anthropic's clients read one."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": provider,
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }


_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/")


def _signer(authorization: str) -> str:
    """The access key of a signed request: Amazon's clients send no bare key without TLS, so they
    are given ours as the access key. The signature proves no more than the key does."""
    found = _SIGNED.match(authorization)
    return "" if found is None else found[1]


class _ClientGone(Exception):
    """The client went away before its request was read."""


def _not_for_key(key: VirtualKey, model: str) -> KeyRefused:
    return KeyRefused(
        f"key {key.id} is not meant for {model!r}", hint=f"it is for {', '.join(key.models)}"
    )


async def _read(receive: Receive, headers: dict[str, str]) -> bytes:
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise PayloadTooLarge(f"the request is over {MAX_BODY} bytes")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY:
            raise PayloadTooLarge(f"the request is over {MAX_BODY} bytes")
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _parse(raw: bytes) -> Json:
    try:
        return fields(json_text.load(raw))
    except (ValueError, RecursionError, WireError) as error:
        raise UsageError("the request body is not a JSON object") from error


async def _send_error(sink: ClientSink, format: Format, error: HoldfastError) -> None:
    status = error.http_status
    body = dumps(format.encode_failure(status, error.kind, str(error)))
    headers = {"content-type": "application/json"}
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        headers["retry-after"] = f"{max(wait, 0):.0f}"
    # Stock clients go again by themselves; we did what could be done already.
    if format.name == "bedrock":  # where Amazon's clients look for the kind of an error
        headers["x-amzn-errortype"] = str(format.encode_failure(status, "", "")["__type"])
    headers["x-should-retry"] = "false" if status in _NO_RETRY or status >= 500 else "true"
    await sink.whole(status, headers, body)


async def _lifespan(app: GatewayApp, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await app.calls.drain()
            await send({"type": "lifespan.shutdown.complete"})
            return
