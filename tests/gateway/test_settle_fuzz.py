"""Whatever a provider sends, its call ends on record and holds nothing any more.

True answers in each format are broken at random places (texts cut inside a character, numbers no
store can hold, lists for texts), or replaced by bytes, and sent whole or as a stream, cut anywhere;
to the library, and to HTTP clients of the same and of another format. `HOLDFAST_FUZZ=20000` looks
harder.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.support import fake_providers, make_gateway
from holdfast.errors import HoldfastError
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Quirks
from holdfast.gateway.formats.event_stream import EventStreamParser, frame
from holdfast.gateway.messages import Origin, ReasoningPart, Request, TextPart, ToolCallPart, user
from holdfast.gateway.reply import Completion, Usage, as_events
from holdfast.gateway.service.app import GatewayApp

EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ", "60"))
WHOLE = Completion(
    parts=(
        ReasoningPart("hm", signature="s"), TextPart("so it is \U0001f600"),
        ToolCallPart("c1", "add", '{"a": 1}'), ToolCallPart("c2", "add", '{"a": 2}'),
    ),
    finish="tool_calls", model="m", usage=Usage(10, 20, cached=3, reasoning=4), id="x",
)  # fmt: skip

TEXTS = st.one_of(
    st.sampled_from(["", "\ud83d", "\ude00", "a\ud83d", "\ude00b", "stop", "message", "completed"]),
    st.text(st.characters(exclude_categories=()), max_size=5),
)
NUMBERS = st.one_of(
    st.sampled_from([2**63 - 1, 2**63, 2**64, -1, 0, 10**30, 1e308, 0.5, True]), st.integers()
)
VALUES: Any = st.recursive(
    st.none() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
        | st.fixed_dictionaries({"type": TEXTS, "text": inner})
    ),
    max_leaves=5,
)  # fmt: skip


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the data."""
    yield here
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in pairs:
            yield from paths(one, (*here, name))


@st.composite
def broken(draw: st.DrawFn, data: Any) -> Any:
    """The data with a few of its places replaced, removed or doubled."""
    data = json.loads(json.dumps(data))
    for _ in range(draw(st.integers(0, 3))):
        places = [path for path in paths(data) if path]
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        inner = data
        for name in way:
            inner = inner[name]
        match draw(st.sampled_from(["replace", "replace", "remove", "double"])):
            case "replace":
                inner[last] = draw(VALUES)
            case "remove":
                del inner[last]
            case _ if isinstance(inner, list):
                inner.insert(last, inner[last])
            case _:
                inner[draw(TEXTS)] = inner[last]
    return data


@st.composite
def bodies(draw: st.DrawFn, origin: Origin, streams: bool) -> bytes:
    """What the provider sends."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    format = FORMATS[origin]
    if not streams:
        return json.dumps(draw(broken(format.encode_reply(WHOLE, None)))).encode()
    encoder = format.encoder(Request("m", (), stream=True))
    if origin == "bedrock":
        frames = b"".join(encoder.encode(event) for event in as_events(WHOLE))
        found = [json.loads(one) for one in EventStreamParser(10**6).feed(frames)]
        out = b"".join(
            frame(*next(iter(one.items())), exception=draw(st.integers(0, 19)) == 0)
            if isinstance(one, dict) and one and len(next(iter(one))) < 200
            else draw(st.binary(max_size=40))
            for one in draw(broken(found))
        )
        return out[: draw(st.integers(0, len(out)))] if draw(st.integers(0, 4)) == 0 else out
    sent = b"".join(encoder.encode(event) for event in as_events(WHOLE)).decode()
    events = [line[6:] for line in sent.splitlines() if line.startswith("data: ")]
    data = [json.loads(one) for one in events if one != "[DONE]"]
    data = [one for one in draw(broken(data)) if one is not None]
    out = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in data)
    if origin == "chat" or draw(st.booleans()):
        out += b"data: [DONE]\n\n"
    return out[: draw(st.integers(0, len(out)))] if draw(st.integers(0, 4)) == 0 else out


@dataclass
class Upstream:
    """A provider that answers with the bytes it is told, cut where it is told."""

    stream_type: str = "text/event-stream"
    streams: bool = False
    body: bytes = b""
    cut: int = 0
    port: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                await reader.readexactly(size)
                kind = self.stream_type.encode() if self.streams else b"application/json"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
                    % (kind, len(self.body))
                )
                writer.write(self.body[: self.cut])
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(self.body[self.cut :])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()


@contextmanager
def fuzzed(origin: Origin) -> Iterator[tuple[asyncio.Runner, Upstream, Any]]:
    with asyncio.Runner() as runner:
        upstream = Upstream(FORMATS[origin].stream_type)
        server = runner.run(_listen(upstream))
        gateway = make_gateway(
            providers=fake_providers(f"http://127.0.0.1:{upstream.port}/v1", origin),
            prices={f"fake-{origin}/*": {"input": 1, "output": 2}},
            budgets=[{"per": "day", "tokens": 10**15}],
            breaker={"failures": 10**9},
        )
        try:
            yield runner, upstream, gateway
        finally:
            runner.run(gateway.close())
            runner.run(_stop(server, upstream))


async def _listen(upstream: Upstream) -> asyncio.Server:
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    return server


async def _stop(server: asyncio.Server, upstream: Upstream) -> None:
    server.close()
    while upstream.open:
        for writer in upstream.open:
            writer.transport.abort()
        await asyncio.sleep(0)


async def by_library(gateway: Any, origin: Origin, streams: bool) -> None:
    model = f"fake-{origin}/m"
    try:
        if not streams:
            reply = await generate_text(model, prompt="hi", max_tokens=50, gateway=gateway)
        else:
            async with stream_text(model, prompt="hi", max_tokens=50, gateway=gateway) as stream:
                "".join([piece async for piece in stream]).encode()
            reply = await stream.reply()
        reply.text.encode()  # what is handed on can be shown
    except HoldfastError:
        pass


async def by_service(gateway: Any, origin: Origin, client: Origin, streams: bool) -> None:
    """Asked in the client's format; what is sent back is JSON, or a stream of it, in UTF-8."""
    model, format = f"fake-{origin}/m", FORMATS[client]
    request = Request(model, (user("hi"),), max_tokens=50, stream=streams)
    body = format.encode_request(request, Quirks())
    sent: list[dict[str, Any]] = []
    asked = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> dict[str, Any]:
        if not asked:
            await asyncio.Event().wait()  # the client stays
        return asked.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    path, _, query = format.path(model, streams).partition("?")
    root = "" if client == "bedrock" else "/v1"
    scope = {
        "type": "http", "method": "POST", "path": unquote(root + path), "headers": [],
        "query_string": query.encode(),
    }  # fmt: skip
    await GatewayApp(gateway, open_to_all=True)(scope, receive, send)
    assert sent[-1]["more_body"] is False
    said = b"".join(message.get("body", b"") for message in sent)
    if client == "bedrock" and streams and sent[0]["status"] == 200:
        list(EventStreamParser(10**7).feed(said))
    else:
        said.decode()


@pytest.mark.parametrize("origin", FORMATS)
def test_whatever_a_provider_sends_its_call_ends_and_holds_nothing(origin: Origin) -> None:
    with fuzzed(origin) as (runner, upstream, gateway):

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 60, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.data())
        def look(data: st.DataObject) -> None:
            streams = data.draw(st.booleans(), "streams")
            way = data.draw(st.sampled_from(["library", *FORMATS]), "way")
            upstream.streams = streams
            upstream.body = data.draw(bodies(origin, streams), "body")
            upstream.cut = data.draw(st.integers(0, len(upstream.body)), "cut")
            if way == "library":
                runner.run(by_library(gateway, origin, streams))
            else:
                runner.run(by_service(gateway, origin, way, streams))
            (call,) = runner.run(gateway.ledger.calls(limit=1))
            assert call.status in ("completed", "failed"), call
            assert (call.reserved, call.reserved_tokens) == (0, 0)

        look()
        days = [c.start.started_at // 86400 for c in runner.run(gateway.ledger.calls(limit=10**6))]
        assert len(days) >= EXAMPLES // 2
        spend = gateway.ledger._start(  # every scope there is
            lambda c: c.execute("SELECT held_usd, held_tokens, calls FROM spend").fetchall()
        ).result()
        assert [row[:2] for row in spend] == [(0, 0)] * len(spend)
        assert sum(row[2] for row in spend) == len(days)
