"""Gemini's format, judged by Google's own SDK: as its clients' server, and as a client of it."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.google_sdk import errors, genai, types
from gateway.support import Service, fake_providers, make_gateway
from holdfast.errors import AuthRejected, BadReply, BudgetExceeded
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.messages import (
    FilePart,
    ImagePart,
    ProviderTool,
    ReasoningPart,
    Request,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    assistant,
    tool_result,
    user,
)
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.gateway.upstream import StreamReader
from holdfast.testing.providers import FakeProvider, Raw

GEMINI = FORMATS["gemini"]
UPSTREAMS = ["chat", "responses", "anthropic", "gemini", "bedrock"]
SSE = {"Content-Type": "text/event-stream"}


def answer(request: Request) -> Any:
    asked = request.messages[-1].text
    if asked == "tools":
        return Say("Let me look.", tools=[("weather", {"city": "Rome — ü"})], usage=Usage(50, 20))
    if asked == "json":
        assert request.output is not None and request.output.schema is not None
        return Say(json.dumps({"city": "Oslo"}))
    if asked == "bad":
        return Fail(400, "the request is wrong")
    if asked == "event":
        return Fail("error_event", "too much to do")
    if asked == "files":
        kinds = [p.media_type for p in request.messages[-1].parts
                 if isinstance(p, ImagePart | FilePart)]  # fmt: skip
        return Say(", ".join(str(kind) for kind in kinds))
    results = [p for m in request.messages for p in m.parts if isinstance(p, ToolResultPart)]
    if results:
        return Say(" and ".join(result.text for result in results))
    return Say("Hello — grüß Gott, 你好! 🎉", usage=Usage(11, 7, cached=4))


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(answer) as fake:
        yield fake


@pytest.fixture(scope="module")
def service(fake: FakeProvider) -> Iterator[Service]:
    def make() -> Any:
        bedrock = {"base_url": f"http://127.0.0.1:{fake.port}", "formats": ["bedrock"]}
        providers = fake_providers(fake.url, "chat", "responses", "anthropic", "gemini")
        return make_gateway(
            providers={**providers, "fake-bedrock": bedrock},
            prices={f"fake-{name}/*": {"input": 1, "output": 2} for name in UPSTREAMS},
        )

    with Service(make) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Any]:
    made = genai.Client(
        api_key=service.secret, http_options=types.HttpOptions(base_url=service.anthropic_url)
    )
    yield made
    made.close()


@pytest.fixture(params=UPSTREAMS)
def model(request: pytest.FixtureRequest) -> str:
    return f"fake-{request.param}/m"


def test_googles_client_reads_a_whole_answer(service: Service, client: Any, model: str) -> None:
    said = client.models.generate_content(
        model=model, contents="hi", config=types.GenerateContentConfig(system_instruction="be kind")
    )
    assert said.text == "Hello — grüß Gott, 你好! 🎉"
    assert said.candidates and said.candidates[0].finish_reason == types.FinishReason.STOP
    usage = said.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count) == (11, 7)
    assert usage.cached_content_token_count == 4
    call = service.calls()[0]
    assert (call.status, call.start.format) == ("completed", "gemini")
    assert (call.end.input_tokens, call.end.output_tokens) == (11, 7)
    assert call.end.cost


def test_googles_client_reads_a_stream(client: Any, model: str) -> None:
    chunks = list(client.models.generate_content_stream(model=model, contents="hi"))
    assert "".join(chunk.text or "" for chunk in chunks) == "Hello — grüß Gott, 你好! 🎉"
    assert len(chunks) > 2
    assert chunks[-1].usage_metadata is not None
    assert chunks[-1].usage_metadata.total_token_count == 18


def test_googles_client_calls_tools_by_itself(client: Any, model: str) -> None:
    def weather(city: str) -> dict[str, str]:
        """The weather of a city."""
        return {"result": f"sunny in {city}"}

    said = client.models.generate_content(
        model=model, contents="tools", config=types.GenerateContentConfig(tools=[weather])
    )
    assert said.text is not None and "sunny in Rome — ü" in said.text


def test_googles_client_gets_typed_data_and_sends_files(client: Any, model: str) -> None:
    schema = types.Schema(
        type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}
    )
    said = client.models.generate_content(
        model=model, contents="json",
        config=types.GenerateContentConfig(
            response_mime_type="application/json", response_schema=schema
        ),
    )  # fmt: skip
    assert said.text is not None and json.loads(said.text) == {"city": "Oslo"}
    parts: list[Any] = ["files", types.Part.from_bytes(data=b"png", mime_type="image/png")]
    if model != "fake-responses/m":
        parts.append(types.Part.from_bytes(data=b"%PDF", mime_type="application/pdf"))
    said = client.models.generate_content(model=model, contents=parts)
    assert said.text in ("image/png, application/pdf", "image/png")


def test_googles_client_raises_its_own_errors(client: Any, model: str) -> None:
    with pytest.raises(errors.ClientError, match="the request is wrong") as caught:
        client.models.generate_content(model=model, contents="bad")
    assert caught.value.code == 400
    with pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(model="nobody/m", contents="x")
    assert caught.value.code == 404
    with pytest.raises(errors.APIError):
        list(client.models.generate_content_stream(model=model, contents="event"))


def test_counting_and_vectors_pass_through(service: Service, client: Any) -> None:
    counted = client.models.count_tokens(model="fake-gemini/m", contents="hello")
    assert counted.total_tokens
    found = client.models.embed_content(model="fake-gemini/m", contents=["a", "b"])
    assert found.embeddings is not None and len(found.embeddings) == 2
    formats = [call.start.format for call in service.calls(limit=2)]
    assert formats == ["embeddings", "count_tokens"]


# --- as a client of Gemini ------------------------------------------------------------------------

CHUNKS = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "think", "thought": True}]},
                     "index": 0}], "modelVersion": "gemini-3-pro", "responseId": "r1"},
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "Grüß "}]}, "index": 0}],
     "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}, "responseId": "r1"},
    {"candidates": [{"content": {"role": "model", "parts": [
        {"text": "Gott 🎉"},
        {"functionCall": {"name": "f", "args": {"x": "ü"}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "f", "args": {"x": "ü"}}}]}, "index": 0}], "responseId": "r1"},
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "", "thoughtSignature": "bGF0ZQ"}]},
                     "finishReason": "STOP", "index": 0,
                     "groundingMetadata": {"webSearchQueries": ["a", "b"]}}],
     "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 7,
                       "toolUsePromptTokenCount": 2, "cachedContentTokenCount": 3,
                       "totalTokenCount": 23}, "responseId": "r1"},
]  # fmt: skip
WIRE = b"".join(
    b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\r\n\r\n" for one in CHUNKS
)


def decoded(pieces: list[bytes]) -> Any:
    from holdfast.gateway.reply import Assembler

    reader, assembler = StreamReader("p", GEMINI, 10**6), Assembler()
    for piece in pieces:
        for event in reader.feed(piece):
            assembler.add(event)
    for event in reader.close():
        assembler.add(event)
    return assembler.completion()


def test_a_stream_reads_the_same_cut_at_every_byte() -> None:
    whole = decoded([WIRE])
    assert [type(part) for part in whole.parts] == [
        ReasoningPart, TextPart, ToolCallPart, ToolCallPart, ReasoningPart,
    ]  # fmt: skip
    assert (whole.text, whole.finish, whole.id) == ("Grüß Gott 🎉", "tool_calls", "r1")
    assert whole.usage == Usage(11, 12, cached=3, reasoning=7, searches=2)
    assert whole.parts[-1] == ReasoningPart(signature="bGF0ZQ", origin="gemini")
    first, second = [part for part in whole.parts if isinstance(part, ToolCallPart)]
    assert first.id != second.id and first.input == {"x": "ü"}
    for at in range(1, len(WIRE)):
        assert decoded([WIRE[:at], WIRE[at:]]) == whole
    for at in range(0, len(WIRE) - 2 * len(b"\r\n\r\n") - 400, 7):
        with pytest.raises(BadReply):
            decoded([WIRE[:at]])


def test_signatures_go_back_where_they_came_from() -> None:
    said = decoded([WIRE])
    calls = [part for part in said.parts if isinstance(part, ToolCallPart)]
    turn = (user("x"), assistant(*said.parts), *(tool_result(c.id, "4") for c in calls))
    body = GEMINI.encode_request(Request("gemini-3-pro", turn), QUIRKS)
    model, results = body["contents"][1]["parts"], body["contents"][2]["parts"]
    signed = [part for part in model if "thoughtSignature" in part]
    assert [part["thoughtSignature"] for part in signed] == ["c2ln", "bGF0ZQ"]
    assert signed[0]["functionCall"] == {"name": "f", "args": {"x": "ü"}}, "no id of our own"
    assert [part["functionResponse"]["name"] for part in results] == ["f", "f"]
    types.GenerateContentResponse.model_validate(CHUNKS[2])
    for content in body["contents"]:
        types.Content.model_validate(content)


QUIRKS = make_gateway().providers["google"].quirks


def test_a_blocked_prompt_is_a_refusal() -> None:
    found = GEMINI.decode_reply({
        "promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "g",
        "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
    })  # fmt: skip
    assert found.finish == "content_filter" and found.usage == Usage(4, 0)


def test_what_is_asked_is_a_request_that_the_sdk_knows() -> None:
    tool = Tool("f", "does f", {"type": "object", "properties": {"x": {"type": "string"}}})
    request = Request(
        "gemini-2.5-flash", (user("x", FilePart.of(b"%PDF", "application/pdf")),), tools=(tool,),
        provider_tools=(ProviderTool("web_search"), ProviderTool("code_execution")),
        effort="low", max_tokens=9, stop=("END",), seed=3,
    )  # fmt: skip
    body = GEMINI.encode_request(request, QUIRKS)
    settings = types.GenerationConfig.model_validate(body["generationConfig"])
    assert settings.thinking_config is not None
    assert settings.thinking_config.thinking_budget == 1024
    tools = [types.Tool.model_validate(one) for one in body["tools"]]
    assert tools[0].function_declarations is not None
    assert tools[1].google_search is not None and tools[2].code_execution is not None
    newer = GEMINI.encode_request(Request("gemini-3-pro", (user("x"),), effort="high"), QUIRKS)
    assert newer["generationConfig"]["thinkingConfig"]["thinkingLevel"] == "high"


async def test_the_library_asks_googles_own_format() -> None:
    with FakeProvider(["hello", Raw([WIRE], headers=SSE), Fail(429, retry_after=9e9)]) as fake:
        gateway = make_gateway(
            providers={"google": {"base_url": fake.url}}, environ={"GEMINI_API_KEY": "k"}
        )
        said = await generate_text("gemini-2.5-flash", prompt="hi", gateway=gateway)
        assert (said.text, said.served_by.partition("/")[0]) == ("hello", "google")
        async with stream_text("google/gemini-2.5-flash", prompt="x", gateway=gateway) as stream:
            assert "".join([piece async for piece in stream]) == "Grüß Gott 🎉"
        reply = await stream.reply()
        assert (reply.usage.output, reply.usage.reasoning) == (12, 7)
        sent = fake.received[0]
        assert sent.format == "gemini" and "Authorization" not in sent.headers
        assert {k.lower(): v for k, v in sent.headers.items()}["x-goog-api-key"] == "k"
        await gateway.close()


async def test_a_file_or_a_search_needs_a_bound_under_a_budget() -> None:
    with FakeProvider(["hello", "hello"]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "gemini"), budgets=[{"per": "day", "tokens": 10**6}]
        )
        pdf = user("x", FilePart.of(b"%PDF", "application/pdf"))
        asked: list[dict[str, Any]] = [
            {"messages": [pdf]},
            {"prompt": "x", "tools": [ProviderTool("web_search"), Tool("f")]},
        ]
        for options in asked:
            with pytest.raises(BudgetExceeded, match="nothing bounds"):
                await generate_text("fake-gemini/m", gateway=gateway, **options)
            await generate_text("fake-gemini/m", gateway=gateway, input_bound=9000, **options)
        await gateway.close()


# --- Vertex ---------------------------------------------------------------------------------------


def service_account(folder: Path, token_uri: str) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )  # fmt: skip
    file = folder / "account.json"
    file.write_text(json.dumps({
        "type": "service_account", "project_id": "p1", "private_key_id": "k1",
        "private_key": pem.decode(), "client_email": "a@p1.iam", "token_uri": token_uri,
    }))  # fmt: skip
    return file


async def test_vertex_takes_a_token_made_of_a_service_account(tmp_path: Path) -> None:
    judge: Any = importlib.import_module("google.oauth2.service_account")
    asked: list[bytes] = []

    async def tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split()[0])
        asked.append(await reader.readexactly(size))
        body = json.dumps({"access_token": f"ya29.{len(asked)}", "expires_in": 3600}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
                     b"%d\r\n\r\n%b" % (len(body), body))  # fmt: skip
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(tokens, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    file = service_account(tmp_path, url)
    with FakeProvider(["one", "two"]) as fake:
        gateway = make_gateway(
            providers={"vertex": {"base_url": f"{fake.url}/publishers/google"}},
            environ={"GOOGLE_APPLICATION_CREDENTIALS": str(file)},
        )
        for expected in ("one", "two"):
            said = await generate_text("vertex/gemini-2.5-pro", prompt="x", gateway=gateway)
            assert said.text == expected
        assert [r.headers["Authorization"] for r in fake.received] == ["Bearer ya29.1"] * 2
        await gateway.close()
    server.close()
    assert len(asked) == 1, "the token is kept"
    # Google's own library makes the same claim of the same account.
    claim = asked[0].split(b"assertion=")[1].split(b".")
    held = json.loads(base64.urlsafe_b64decode(claim[1] + b"=" * (-len(claim[1]) % 4)))
    theirs = judge.Credentials.from_service_account_file(
        str(file), scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    parts = theirs._make_authorization_grant_assertion().split(b".")
    wanted = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    assert {k: held[k] for k in ("iss", "scope", "aud")} == {
        k: wanted[k] for k in ("iss", "scope", "aud")
    }
    assert abs(held["iat"] - time.time()) < 600


async def test_vertex_says_what_is_missing(tmp_path: Path) -> None:
    gateway = make_gateway(environ={"HOME": str(tmp_path)})
    from holdfast.errors import UnknownModel

    with pytest.raises(UnknownModel, match="GOOGLE_CLOUD_PROJECT"):
        await generate_text("vertex/gemini-2.5-pro", prompt="x", gateway=gateway)
    broken = tmp_path / "broken.json"
    broken.write_text('{"type": "magic", "project_id": "p"}')
    gateway = make_gateway(environ={"GOOGLE_APPLICATION_CREDENTIALS": str(broken)})
    assert gateway.providers["vertex"].base_url == (
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google"
    )
    with pytest.raises(AuthRejected, match="magic"):
        await generate_text("vertex/gemini-2.5-pro", prompt="x", gateway=gateway)
    await gateway.close()
