"""Fake providers for tests: real HTTP on loopback, the true wire formats, answers by script.

    with FakeProvider(["hello", Say("tool time", tools=[("add", {"a": 1})]), Fail(529)]) as fake:
        client = openai.OpenAI(base_url=fake.url, api_key="any")

Speaks OpenAI chat completions and responses, Anthropic messages, Gemini, Bedrock Converse and
Cohere on one port, in a thread of its own, so that it serves sync clients, async clients and other
processes alike.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import unquote

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
from holdfast.gateway.service.endpoints import Asked, asked_for, form_fields


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
    path: str = ""


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
        asyncio.run(self._run())  # which cancels the connections that are left

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            while (request := await _read_request(reader, writer)) is not None:
                await self._answer(request, _Response(writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client had enough
        except asyncio.CancelledError:  # the fake is closed, whatever is left to send
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, request: _HttpRequest, response: _Response) -> None:
        known: dict[tuple[str, str], Callable[[_HttpRequest, _Response], Awaitable[None]]] = {
            ("GET", "/v1/models"): self._list,
            ("POST", "/v1/embeddings"): self._embed,
            ("POST", "/v1/messages/count_tokens"): self._count,
        }
        handle = known.get((request.method, request.path))
        asked = asked_for(request.path) if request.method == "POST" else None
        if handle is not None:
            await handle(request, response)
        elif asked is not None and asked.endpoint is not None:
            await self._endpoint(asked, request, response)
        elif asked is not None:
            await self._converse(asked, request, response)
        else:
            await _fail(response, FORMATS["chat"], 404, f"{request.method} {request.path}")

    async def _list(self, request: _HttpRequest, response: _Response) -> None:
        if not await self._allowed(FORMATS["chat"], request, response):
            return
        data = [{"id": name, "object": "model", "owned_by": "fake"} for name in self.models]
        await response.whole(dumps({"object": "list", "data": data}))

    async def _embed(self, request: _HttpRequest, response: _Response) -> None:
        """Vectors of the right shape: a text's bytes, so that equal texts have equal ones."""
        body = json.loads(request.body)
        self.received.append(Received("chat", request.headers, body))
        if not await self._allowed(FORMATS["chat"], request, response):
            return
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
        await response.whole(
            dumps({"object": "list", "data": data, "model": model, "usage": usage})
        )

    async def _count(self, request: _HttpRequest, response: _Response) -> None:
        self.received.append(Received("anthropic", request.headers, json.loads(request.body)))
        if await self._allowed(FORMATS["anthropic"], request, response):
            await response.whole(dumps({"input_tokens": estimate(len(request.body))}))

    async def _endpoint(self, wanted: Asked, request: _HttpRequest, response: _Response) -> None:
        """An endpoint beside conversations: an answer of the right shape."""
        endpoint = wanted.endpoint
        assert endpoint is not None
        kind = {name.lower(): value for name, value in request.headers.items()}.get(
            "content-type", ""
        )
        form = kind.startswith("multipart/")
        body = form_fields(request.body, kind) if form else json.loads(request.body)
        format = wanted.format
        self.received.append(Received(format.name, request.headers, body, request.path))
        if not await self._allowed(format, request, response):
            return
        if endpoint.name == "speech":
            sound = str(body.get("input")).encode()
            await response.whole(b"ID3" + sound, headers={"Content-Type": "audio/mpeg"})
            return
        await response.whole(dumps(_ENDPOINTS[endpoint.name](wanted, request.body, body)))

    async def _converse(self, wanted: Asked, request: _HttpRequest, response: _Response) -> None:
        format = wanted.format
        body = json.loads(request.body)
        self.received.append(Received(format.name, request.headers, body, request.path))
        if not await self._allowed(format, request, response):
            return
        streams = bool(body.get("stream")) if wanted.streams is None else wanted.streams
        named = body.get("model") if wanted.model is None else wanted.model
        try:
            asked = format.decode_request({**body, "model": named, "stream": streams})
        except WireError as error:
            await _fail(response, format, 400, str(error))
            return
        answer: Any = await self._model.answer(asked)
        if isinstance(answer, Raw):
            await _send_raw(response, answer)
        elif isinstance(answer, Fail):
            await _send_failure(response, format, asked, answer)
        elif asked.stream:
            await _send_stream(response, format, asked, answer)
        else:
            completion = as_completion(answer, asked)
            if isinstance(answer, Say) and answer.delay:
                await asyncio.sleep(answer.delay * len(in_pieces(completion, answer.chunk)))
            await response.whole(dumps(format.encode_reply(completion, asked)))

    async def _allowed(self, format: Format, request: _HttpRequest, response: _Response) -> bool:
        if self._key is None or request.key == self._key:
            return True
        await _fail(response, format, 401, f"no such key: {request.key}")
        return False


def _counted(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    tokens = estimate(len(raw))
    if wanted.format.name == "gemini":
        return {"totalTokens": tokens}
    if wanted.format.name == "anthropic":
        return {"input_tokens": tokens}
    return {"inputTokens": tokens}


def _embedded(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    if wanted.format.name == "cohere":
        texts = [str(one) for one in body.get("texts") or ()]
        billed = {"input_tokens": sum(estimate(len(one.encode())) for one in texts)}
        vectors = {"float": [[0.5, 0.25] for _ in texts]}
        return {"id": "e1", "texts": texts, "embeddings": vectors, "meta": {"billed_units": billed}}
    given = body.get("requests") or [body]
    return {"embeddings": [{"values": [0.5, 0.25]} for _ in given]}


def _drawn(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    pictures = [{"b64_json": "aGk="} for _ in range(int(body.get("n") or 1))]
    usage = {"input_tokens": 10, "output_tokens": 100, "total_tokens": 110}
    return {"created": 1, "data": pictures, "usage": usage}


def _judged(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"flagged": False, "categories": {}, "category_scores": {}}
    return {"id": "modr_1", "model": body.get("model") or "judge", "results": [result]}


def _heard(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    return {"text": "hello", "usage": {"type": "duration", "seconds": 90}}


def _ranked(wanted: Asked, raw: bytes, body: dict[str, Any]) -> dict[str, Any]:
    """The documents by how many letters they share with what is looked for."""
    scores = [
        len(set(str(one)) & set(str(body["query"]))) / 100 for one in body.get("documents") or ()
    ]
    order = sorted(range(len(scores)), key=lambda n: -scores[n])[: body.get("top_n")]
    results = [{"index": n, "relevance_score": scores[n]} for n in order]
    return {"id": "r1", "results": results, "meta": {"billed_units": {"search_units": 1}}}


_ENDPOINTS: dict[str, Callable[[Asked, bytes, dict[str, Any]], dict[str, Any]]] = {
    "count_tokens": _counted,
    "embeddings": _embedded,
    "images": _drawn,
    "moderations": _judged,
    "transcriptions": _heard,
    "translations": _heard,
    "rerank": _ranked,
}


def _as_script(script: FakeScript) -> Any:
    found: Script | Any = script
    return found


# --- HTTP/1.1, as much as clients of providers speak, and bytes that no library would send ---


@dataclass(frozen=True, slots=True)
class _HttpRequest:
    method: str
    path: str
    headers: dict[str, str]
    """Names as they were sent."""
    body: bytes

    @property
    def key(self) -> str:
        headers = {name.lower(): value for name, value in self.headers.items()}
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        named = ("x-api-key", "api-key", "x-goog-api-key")
        return bearer or next((headers[name] for name in named if name in headers), "")


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> _HttpRequest | None:
    """The next request of a connection; None once the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    lower = {name.lower(): value for name, value in headers.items()}
    if lower.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if lower.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(lower.get("content-length", "0")))
    return _HttpRequest(method, unquote(target.partition("?")[0]), headers, body)


class _Response:
    """An answer: `whole`, or `start`, `write` and `end` for one of unknown length."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if status in _PHRASES else ''}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    async def whole(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        head = {"Content-Type": "application/json", "x-request-id": "req_fake", **(headers or {})}
        self._writer.write(self._head(status, {**head, "Content-Length": str(len(body))}) + body)
        await self._writer.drain()

    async def start(self, headers: Mapping[str, str], status: int = 200) -> None:
        self._writer.write(self._head(status, {**headers, "Transfer-Encoding": "chunked"}))
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        if data:  # an empty chunk would be the end
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def abort(self) -> NoReturn:
        """Drop the connection, whatever was sent."""
        self._writer.transport.abort()
        raise ConnectionResetError("scripted failure")


_PHRASES = frozenset(HTTPStatus)


async def _fail(
    response: _Response,
    format: Format,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    body = dumps(format.encode_failure(status, "fake_error", message))
    await response.whole(body, status, headers)


async def _send_failure(response: _Response, format: Format, asked: Request, fail: Fail) -> None:
    if isinstance(fail.how, int):
        wait = {} if fail.retry_after is None else {"Retry-After": f"{fail.retry_after:g}"}
        await _fail(response, format, fail.how, fail.message, wait)
    elif fail.how == "connect":
        response.abort()
    elif fail.how == "hang":
        await asyncio.sleep(3600)
    else:
        await _send_broken(response, format, asked, fail)


async def _send_broken(response: _Response, format: Format, asked: Request, fail: Fail) -> None:
    """A reply that begins well and breaks."""
    kind = format.stream_type if asked.stream else "application/json"
    await response.start({"Content-Type": kind})
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
            await response.write(_broken(format) if asked.stream else b"}{")
            await response.end()
        case "error_event":
            await response.write(format.stream_failure(529, "overloaded_error", fail.message))
            await response.end()
        case _:
            response.abort()


def _broken(format: Format) -> bytes:
    """A piece of a stream that nobody can read."""
    sse = format.stream_type == "text/event-stream"
    return b'data: {"choices": [{"delta"\n\n' if sse else b"\0\0\0\x20 not a frame at all"


async def _send_stream(
    response: _Response, format: Format, asked: Request, answer: Say | Completion
) -> None:
    await response.start({"Content-Type": format.stream_type, "x-request-id": "req_fake"})
    encoder = format.encoder(asked)
    chunk, delay = (answer.chunk, answer.delay) if isinstance(answer, Say) else (12, 0.0)
    for event in in_pieces(as_completion(answer, asked), chunk):
        if delay and isinstance(event, PartDelta):
            await asyncio.sleep(delay)
        await response.write(encoder.encode(event))
    await response.end()


async def _send_raw(response: _Response, raw: Raw) -> None:
    await response.start(raw.headers, raw.status)
    async for chunk in _chunks(raw):
        await response.write(chunk)
    if raw.cut:
        response.abort()
    await response.end()


async def _chunks(raw: Raw) -> AsyncIterator[bytes]:
    chunks = raw.chunks() if callable(raw.chunks) else raw.chunks
    for chunk in chunks:
        if isinstance(chunk, bytes):
            yield chunk
        else:
            await asyncio.sleep(chunk)
