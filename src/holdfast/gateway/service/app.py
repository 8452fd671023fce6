"""The ASGI application: `/v1/chat/completions`, `/v1/responses`, `/v1/messages`, `/v1/models`,
`/v1/embeddings`, `/v1/messages/count_tokens`.

Plain ASGI, so that any server runs it and any application can mount it. Who may call is settled
by virtual keys; where calls go is settled by the gateway's configuration, never by the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import json_text
from holdfast.errors import HoldfastError, KeyRefused, PayloadTooLarge, UsageError
from holdfast.gateway import addresses
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json, WireError, dumps, fields
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.keys import KeyRing, allows
from holdfast.gateway.model_list import list_models
from holdfast.gateway.providers import Candidate
from holdfast.gateway.service.calls import Client, ServiceCalls
from holdfast.gateway.service.endpoints import ENDPOINTS, Endpoint
from holdfast.gateway.service.responses import ClientSink, Send
from holdfast.records.calls import VirtualKey

Receive = Callable[[], Awaitable[dict[str, Any]]]
MAX_BODY = 64 * 1024 * 1024
_PATHS: dict[str, Format] = {f"/v1{format.path}": format for format in FORMATS.values()}
_ANYONE = VirtualKey("", "open", "", 0.0)
_NO_RETRY = (400, 401, 402, 404, 409, 413, 422)


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
        endpoint = ENDPOINTS.get(path)
        format = FORMATS[endpoint.format] if endpoint else _PATHS.get(path, FORMATS["chat"])
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            await self._route(scope["method"], path, headers, receive, sink)
        except _ClientGone:
            pass
        except HoldfastError as error:
            if sink.started:
                raise
            await _send_error(sink, format, error)

    async def _route(
        self, method: str, path: str, headers: dict[str, str], receive: Receive, sink: ClientSink
    ) -> None:
        if path == "/healthz":
            await sink.whole(200, {"content-type": "application/json"}, b'{"ok":true}')
            return
        key = await self._key(headers)
        if path in _PATHS and method == "POST":
            await self._call(_PATHS[path], key, headers, receive, sink)
        elif path in ENDPOINTS and method == "POST":
            endpoint = ENDPOINTS[path]
            format = FORMATS[endpoint.format]
            await self._call(format, key, headers, receive, sink, endpoint)
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
        return await self._ring.check(secret or headers.get("x-api-key", "").strip())

    async def _call(
        self,
        format: Format,
        key: VirtualKey,
        headers: dict[str, str],
        receive: Receive,
        sink: ClientSink,
        endpoint: Endpoint | None = None,
    ) -> None:
        raw = await _read(receive, headers)
        body = _parse(raw)
        addresses.check_fields(body)
        if not self._gateway.config.private_image_urls and b"url" in raw:
            addresses.check_body(body)
        asked = body.get("model")
        if not isinstance(asked, str):
            raise UsageError("model should be a string")
        client = Client(key, headers, format, body, raw, asked, endpoint)
        await self.calls.serve(client, self._candidates(asked, key), receive, sink)

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
        raise UsageError("the request body is no JSON object") from error


async def _send_error(sink: ClientSink, format: Format, error: HoldfastError) -> None:
    status = error.http_status
    body = dumps(format.encode_failure(status, error.kind, str(error)))
    headers = {"content-type": "application/json"}
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        headers["retry-after"] = f"{max(wait, 0):.0f}"
    # Stock clients go again by themselves; we did what could be done already.
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
