"""Claude on Vertex, judged by Anthropic's own client for it: asked the same way, and as its server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.vertex import AnthropicVertex

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.messages import Request, Tool
from holdfast.gateway.scripted import Say
from holdfast.testing.providers import FakeProvider, Received

UPSTREAMS = ["chat", "responses", "anthropic", "gemini", "bedrock", "vertex"]
MODEL = "claude-sonnet-4-5@20250929"
PLACE = "/v1/projects/p1/locations/global/publishers"


def answer(request: Request) -> Any:
    if request.tools and request.messages[-1].role == "user":
        return Say("calling", tools=[("add", {"a": 1})])
    return Say("Hello — grüß Gott! 🎉")


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(answer) as fake:
        yield fake


@pytest.fixture(scope="module")
def machine() -> Iterator[str]:
    """The service that a machine of Google's has its token from."""

    class Metadata(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"access_token": "ya29.machine", "expires_in": 3600}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Metadata-Flavor", "Google")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def vertex(fake: FakeProvider, machine: str) -> Any:
    place = f"http://127.0.0.1:{fake.port}{PLACE}/google"
    bedrock = {"base_url": f"http://127.0.0.1:{fake.port}", "formats": ["bedrock"]}
    providers = fake_providers(fake.url, "chat", "responses", "anthropic", "gemini")
    return make_gateway(
        providers={**providers, "fake-bedrock": bedrock, "vertex": {"base_url": place}},
        environ={"GCE_METADATA_HOST": machine},
    )


@pytest.fixture(scope="module")
def service(fake: FakeProvider, machine: str) -> Iterator[Service]:
    with Service(lambda: vertex(fake, machine)) as service:
        yield service


def client(base: str, token: str) -> AnthropicVertex:
    return AnthropicVertex(
        region="global", project_id="p1", access_token=token, base_url=base, max_retries=0
    )


def asked(fake: FakeProvider) -> tuple[str, dict[str, Any]]:
    last: Received = fake.received[-1]
    return last.path, last.body


def alike(fake: FakeProvider) -> tuple[str, dict[str, Any]]:
    """What was asked, as far as both say it alike: we name the version our codec is of, and a text
    may be a block or a string."""
    path, body = asked(fake)
    assert body["anthropic_version"]
    return path, {**body, "anthropic_version": "", "messages": SAID}


SAID: Any = [{"role": "user", "content": "hi"}]


async def test_the_library_asks_as_anthropics_own_client_does(
    fake: FakeProvider, machine: str
) -> None:
    gateway = vertex(fake, machine)
    theirs = client(fake.url, "t")
    said = await generate_text(f"vertex/{MODEL}", prompt="hi", max_tokens=9, gateway=gateway)
    assert said.text == "Hello — grüß Gott! 🎉" and said.cost is not None
    assert fake.received[-1].headers["Authorization"] == "Bearer ya29.machine"
    ours = alike(fake)
    wanted = theirs.messages.create(model=MODEL, max_tokens=9, messages=SAID)
    assert wanted.content[0].type == "text"
    assert ours == alike(fake)
    assert ours[0] == f"{PLACE}/anthropic/models/{MODEL}:rawPredict"
    async with stream_text(f"vertex/{MODEL}", prompt="hi", max_tokens=9, gateway=gateway) as stream:
        assert [piece async for piece in stream]
    ours = alike(fake)
    with theirs.messages.stream(model=MODEL, max_tokens=9, messages=SAID) as streamed:
        assert streamed.get_final_text() == "Hello — grüß Gott! 🎉"
    assert ours == alike(fake)
    # Gemini is where it was, with the same credentials.
    await generate_text("vertex/gemini-2.5-pro", prompt="hi", gateway=gateway)
    assert asked(fake)[0] == f"{PLACE}/google/models/gemini-2.5-pro:generateContent"
    await gateway.close()
    theirs.close()


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_its_client_works_with_every_upstream(
    service: Service, fake: FakeProvider, upstream: str
) -> None:
    model = MODEL if upstream == "vertex" else f"fake-{upstream}/m"
    with client(service.url, service.secret) as made:
        said = made.messages.create(model=model, max_tokens=50, messages=SAID)
        assert [block.type for block in said.content] == ["text"]
        body = asked(fake)[1]
        assert ("anthropic_version" in body) == (upstream == "vertex")
        tools: Any = [{"name": "add", "description": "", "input_schema": Tool("add").schema}]
        with made.messages.stream(model=model, max_tokens=50, messages=SAID, tools=tools) as stream:
            blocks = stream.get_final_message().content
        assert [block.type for block in blocks] == ["text", "tool_use"]


@pytest.mark.parametrize("upstream", ["anthropic", "vertex"])
def test_tokens_are_counted_by_either_client_at_either_place(
    service: Service, fake: FakeProvider, upstream: str
) -> None:
    named = f"vertex/{MODEL}" if upstream == "vertex" else "fake-anthropic/m"
    wanted = f"{PLACE}/anthropic/models/count-tokens:rawPredict"
    with client(service.url, service.secret) as made:
        assert made.messages.count_tokens(model=named, messages=SAID).input_tokens
        if upstream == "vertex":
            assert asked(fake)[0] == wanted
    with anthropic.Anthropic(base_url=service.anthropic_url, api_key=service.secret) as plain:
        assert plain.messages.count_tokens(model=named, messages=SAID).input_tokens
        if upstream == "vertex":
            assert asked(fake)[0] == wanted
            assert asked(fake)[1]["anthropic_version"] == "vertex-2023-10-16"


def test_an_anthropic_client_passes_through_to_vertex(service: Service, fake: FakeProvider) -> None:
    body = {"model": f"vertex/{MODEL}", "max_tokens": 9, "messages": SAID, "top_k": 3}
    said = httpx2.post(
        f"{service.url}/messages", json=body, headers={"x-api-key": service.secret}, timeout=120
    )
    assert said.status_code == 200
    path, sent = asked(fake)
    assert path.endswith(f"{MODEL}:rawPredict")
    assert sent == {"anthropic_version": "vertex-2023-10-16", "max_tokens": 9, "messages": SAID,
                    "top_k": 3}  # fmt: skip
