"""Fake providers for tests: real HTTP on loopback, the true wire formats, answers by script.

    with FakeProvider(["hello", Say("tool time", tools=[("add", {"a": 1})]), Fail(529)]) as fake:
        client = openai.OpenAI(base_url=fake.url, api_key="any")

Speaks OpenAI chat completions, OpenAI responses and Anthropic messages on one port, in a thread
of its own, so that it serves sync clients, async clients and other processes alike.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import WireError, dumps
from holdfast.gateway.input_bounds import estimate
from holdfast.gateway.messages import Origin, Request
from holdfast.gateway.reply import Completion, PartDelta
from holdfast.gateway.scripted import (
    Answer,
    Fail,
    Say,
    Script,
    ScriptedModel,
    as_completion,
    in_pieces,
)

if TYPE_CHECKING:
    from aiohttp import web


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer byte by byte, for what no well-behaved server would send.

    `chunks` are sent as they are; a number is a pause in seconds. With `cut` the connection is
    dropped after the last one, in the middle of the body.
    """

    chunks: Iterable[bytes | float] | Callable[[], Iterable[bytes | float]] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """A request as the fake got it."""

    format: Origin
    headers: dict[str, str]
    body: dict[str, Any]


FakeAnswer = Answer | Raw
FakeScript = list[FakeAnswer] | Callable[[Request], Any]


class FakeProvider:
    """A provider of our own making at `url` (OpenAI style) and `anthropic_url`."""

    def __init__(self, script: FakeScript, *, key: str | None = None) -> None:
        self._model = ScriptedModel("fake", _as_script(script))
        self._key = key
        self.received: list[Received] = []
        self.models = ["fake-model"]
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name="fake-provider", daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL, as OpenAI's clients and our configuration want it."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL as Anthropic's client wants it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def hits(self) -> int:
        """How many calls reached it."""
        return len(self.received)

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiohttp import web

        app = web.Application(client_max_size=2**26)
        for format in FORMATS.values():
            app.router.add_post(f"/v1{format.path}", self._handler(format))
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/v1/messages/count_tokens", self._count)
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if self._key is not None and not self._allowed(request):
            return _failure(FORMATS["chat"], 401, f"no such key: {_shown_key(request)}")
        data = [{"id": name, "object": "model", "owned_by": "fake"} for name in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _embed(self, request: web.Request) -> web.Response:
        """Vectors of the right shape: a text's bytes, so that equal texts have equal ones."""
        body = await request.json()
        self.received.append(Received("chat", dict(request.headers), body))
        if self._key is not None and not self._allowed(request):
            return _failure(FORMATS["chat"], 401, f"no such key: {_shown_key(request)}")
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data: list[dict[str, Any]] = []
        for index, text in enumerate(given):
            vector = [byte / 255 for byte in str(text).encode()[:8].ljust(8, b"\0")]
            found: Any = vector
            if body.get("encoding_format") == "base64":
                found = b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
            data.append({"object": "embedding", "index": index, "embedding": found})
        tokens = sum(estimate(len(str(text).encode())) for text in given)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        model = body["model"]
        return _json(dumps({"object": "list", "data": data, "model": model, "usage": usage}))

    async def _count(self, request: web.Request) -> web.Response:
        raw = await request.read()
        self.received.append(Received("anthropic", dict(request.headers), json.loads(raw)))
        if self._key is not None and not self._allowed(request):
            return _failure(FORMATS["anthropic"], 401, f"no such key: {_shown_key(request)}")
        return _json(dumps({"input_tokens": estimate(len(raw))}))

    def _handler(self, format: Format) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            body = json.loads(raw)
            self.received.append(Received(format.name, dict(request.headers), body))
            if self._key is not None and not self._allowed(request):
                return _failure(format, 401, f"no such key: {_shown_key(request)}")
            try:
                asked = format.decode_request(body)
            except WireError as error:
                return _failure(format, 400, str(error))
            answer: Any = await self._model.answer(asked)
            if isinstance(answer, Raw):
                return await _send_raw(request, answer)
            if isinstance(answer, Fail):
                return await _send_failure(request, format, asked, answer)
            if asked.stream:
                return await _send_stream(request, format, asked, answer)
            completion = as_completion(answer, asked)
            if isinstance(answer, Say) and answer.delay:
                await asyncio.sleep(answer.delay * len(in_pieces(completion, answer.chunk)))
            return _json(dumps(format.encode_reply(completion, asked)))

        return handle

    def _allowed(self, request: web.Request) -> bool:
        return _shown_key(request) == self._key


def _as_script(script: FakeScript) -> Any:
    found: Script | Any = script
    return found


def _shown_key(request: web.Request) -> str:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bearer or request.headers.get("x-api-key", "") or request.headers.get("api-key", "")


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    from aiohttp import web

    return web.Response(
        body=body, status=status, content_type="application/json",
        headers={"x-request-id": "req_fake", **(headers or {})},
    )  # fmt: skip


def _failure(
    format: Format, status: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    return _json(dumps(format.encode_failure(status, "fake_error", message)), status, headers)


async def _send_failure(
    request: web.Request, format: Format, asked: Request, fail: Fail
) -> web.StreamResponse:
    if isinstance(fail.how, int):
        wait = {} if fail.retry_after is None else {"Retry-After": f"{fail.retry_after:g}"}
        return _failure(format, fail.how, fail.message, wait)
    if fail.how in ("connect", "hang"):
        if fail.how == "hang":
            await asyncio.sleep(3600)
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError("scripted failure")
    return await _send_broken(request, format, asked, fail)


async def _send_broken(
    request: web.Request, format: Format, asked: Request, fail: Fail
) -> web.StreamResponse:
    """A reply that begins well and breaks."""
    from aiohttp import web

    kind = "text/event-stream" if asked.stream else "application/json"
    response = web.StreamResponse(headers={"Content-Type": kind})
    await response.prepare(request)
    completion = as_completion(Say(fail.text), asked)
    if asked.stream:
        encoder, sent = format.encoder(asked), 0
        for event in in_pieces(completion, 4):
            if sent >= fail.after:
                break
            sent += len(event.text) if isinstance(event, PartDelta) else 0
            await response.write(encoder.encode(event))
    else:
        await response.write(dumps(format.encode_reply(completion, asked))[: fail.after])
    match fail.how:
        case "stall":
            await asyncio.sleep(3600)
        case "malformed":
            await response.write(b'data: {"choices": [{"delta"\n\n' if asked.stream else b"}{")
            await response.write_eof()
        case "error_event":
            await response.write(format.stream_failure(529, "overloaded_error", fail.message))
            await response.write_eof()
        case _:
            assert request.transport is not None
            request.transport.abort()
    return response


async def _send_stream(
    request: web.Request, format: Format, asked: Request, answer: Say | Completion
) -> web.StreamResponse:
    from aiohttp import web

    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "x-request-id": "req_fake"}
    )
    await response.prepare(request)
    encoder = format.encoder(asked)
    chunk, delay = (answer.chunk, answer.delay) if isinstance(answer, Say) else (12, 0.0)
    try:
        for event in in_pieces(as_completion(answer, asked), chunk):
            if delay and isinstance(event, PartDelta):
                await asyncio.sleep(delay)
            if data := encoder.encode(event):
                await response.write(data)
        await response.write_eof()
    except ConnectionError:
        pass  # the client had enough
    return response


async def _send_raw(request: web.Request, raw: Raw) -> web.StreamResponse:
    from aiohttp import web

    response = web.StreamResponse(status=raw.status, headers=raw.headers)
    await response.prepare(request)
    try:
        async for chunk in _chunks(raw):
            await response.write(chunk)
        if raw.cut:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
    except ConnectionError:
        pass  # the client had enough: that is what such answers are for
    return response


async def _chunks(raw: Raw) -> AsyncIterator[bytes]:
    chunks = raw.chunks() if callable(raw.chunks) else raw.chunks
    for chunk in chunks:
        if isinstance(chunk, bytes):
            yield chunk
        else:
            await asyncio.sleep(chunk)
