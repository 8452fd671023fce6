"""Bedrock's format, judged by boto3: as its clients' server, and as a client signed like it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.support import Service, fake_providers, make_gateway
from holdfast.errors import AuthRejected, BadReply, RateLimited, UnknownModel
from holdfast.gateway.aws import AwsCredentials, sign
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.cloud_settings import AwsKeys, aws_source
from holdfast.gateway.config import Timeouts
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.event_stream import EventStreamParser, frame
from holdfast.gateway.formats.json_fields import WireError
from holdfast.gateway.http_client import HttpClient
from holdfast.gateway.messages import (
    FilePart,
    ImagePart,
    ReasoningPart,
    Request,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    assistant,
    user,
)
from holdfast.gateway.reply import Assembler, Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.gateway.upstream import StreamReader
from holdfast.testing.providers import FakeProvider, Raw

BEDROCK = FORMATS["bedrock"]
UPSTREAMS = ["chat", "responses", "anthropic", "gemini", "bedrock"]
TOOLS: Any = {
    "tools": [
        {
            "toolSpec": {
                "name": "weather",
                "description": "w",
                "inputSchema": {
                    "json": {"type": "object", "properties": {"city": {"type": "string"}}}
                },
            }
        }
    ]
}


def answer(request: Request) -> Any:
    asked = request.messages[-1].text
    if asked == "tools":
        return Say("Let me look.", tools=[("weather", {"city": "Rome — ü"})], usage=Usage(50, 20))
    if asked == "bad":
        return Fail(400, "the request is wrong")
    if asked == "limited":
        return Fail(429, "slow down", retry_after=9e9)
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
    made: Any = boto3.client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=service.anthropic_url,
        aws_access_key_id=service.secret, aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    yield made
    made.close()


@pytest.fixture(params=UPSTREAMS)
def model(request: pytest.FixtureRequest) -> str:
    return f"fake-{request.param}/m"


def say(*content: Any) -> Any:
    return [
        {"role": "user", "content": [{"text": c} if isinstance(c, str) else c for c in content]}
    ]


def test_amazons_client_reads_a_whole_answer(service: Service, client: Any, model: str) -> None:
    said = client.converse(
        modelId=model, messages=say("hi"), system=[{"text": "be kind"}],
        inferenceConfig={"maxTokens": 99, "temperature": 0.5},
    )  # fmt: skip
    assert said["output"]["message"]["content"] == [{"text": "Hello — grüß Gott, 你好! 🎉"}]
    assert said["stopReason"] == "end_turn"
    usage = said["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["cacheReadInputTokens"]) == (7, 7, 4)
    call = service.calls()[0]
    assert (call.status, call.start.format) == ("completed", "bedrock")
    assert (call.end.input_tokens, call.end.output_tokens) == (11, 7)
    assert call.end.cost


def test_amazons_client_reads_a_stream(client: Any, model: str) -> None:
    events = list(client.converse_stream(modelId=model, messages=say("hi"))["stream"])
    words = [e["contentBlockDelta"]["delta"]["text"] for e in events if "contentBlockDelta" in e]
    assert "".join(words) == "Hello — grüß Gott, 你好! 🎉" and len(words) > 1
    assert "messageStart" in events[0] and "metadata" in events[-1]
    assert events[-1]["metadata"]["usage"]["totalTokens"] == 18


def test_amazons_client_goes_on_with_a_tools_answer(client: Any, model: str) -> None:
    asked = say("tools")
    first = client.converse(modelId=model, messages=asked, toolConfig=TOOLS)
    assert first["stopReason"] == "tool_use"
    [use] = [b["toolUse"] for b in first["output"]["message"]["content"] if "toolUse" in b]
    assert (use["name"], use["input"]) == ("weather", {"city": "Rome — ü"})
    result = {"toolUseId": use["toolUseId"], "content": [{"json": {"sky": "grün"}}]}
    more = [*asked, first["output"]["message"], *say({"toolResult": result})]
    said = client.converse(modelId=model, messages=more, toolConfig=TOOLS)
    assert json.loads(said["output"]["message"]["content"][0]["text"]) == {"sky": "grün"}
    events = list(client.converse_stream(modelId=model, messages=asked, toolConfig=TOOLS)["stream"])
    deltas = [e["contentBlockDelta"]["delta"] for e in events if "contentBlockDelta" in e]
    arguments = "".join(d["toolUse"]["input"] for d in deltas if "toolUse" in d)
    assert json.loads(arguments) == {"city": "Rome — ü"}


def test_amazons_client_sends_pictures_and_documents(client: Any, model: str) -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"png"}}}
    pdf = {"document": {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF"}}}
    said = client.converse(modelId=model, messages=say("files", image, pdf))
    assert said["output"]["message"]["content"][0]["text"] == "image/png, application/pdf"


def test_amazons_client_raises_its_own_errors(client: Any, model: str) -> None:
    with pytest.raises(client.exceptions.ValidationException, match="the request is wrong"):
        client.converse(modelId=model, messages=say("bad"))
    with pytest.raises(client.exceptions.ThrottlingException):
        client.converse(modelId=model, messages=say("limited"))
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.converse(modelId="nobody/m", messages=say("x"))
    stream = client.converse_stream(modelId=model, messages=say("event"))["stream"]
    with pytest.raises(botocore.exceptions.EventStreamError):
        list(stream)
    stream.close()


# --- as a client of Bedrock -----------------------------------------------------------------------

EVENTS: list[tuple[str, Any]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"delta": {"reasoningContent": {"text": "thi"}}, "contentBlockIndex": 0}),
    ("contentBlockDelta", {"delta": {"reasoningContent": {"text": "nk"}}, "contentBlockIndex": 0}),
    ("contentBlockDelta", {"delta": {"reasoningContent": {"signature": "SIG"}},
                           "contentBlockIndex": 0}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("contentBlockDelta", {"delta": {"text": "Grüß "}, "contentBlockIndex": 1}),
    ("contentBlockDelta", {"delta": {"text": "Gott 🎉"}, "contentBlockIndex": 1}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("contentBlockStart", {"start": {"toolUse": {"toolUseId": "t1", "name": "f"}},
                           "contentBlockIndex": 2}),
    ("contentBlockDelta", {"delta": {"toolUse": {"input": '{"x": '}}, "contentBlockIndex": 2}),
    ("contentBlockDelta", {"delta": {"toolUse": {"input": '"ü"}'}}, "contentBlockIndex": 2}),
    ("contentBlockStop", {"contentBlockIndex": 2}),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 5, "outputTokens": 9, "totalTokens": 20,
                            "cacheReadInputTokens": 4, "cacheWriteInputTokens": 2,
                            "cacheDetails": [{"ttl": "1h", "inputTokens": 2}]},
                  "metrics": {"latencyMs": 1}}),
]  # fmt: skip
WIRE = b"".join(frame(kind, payload) for kind, payload in EVENTS)
KIND = {"Content-Type": "application/vnd.amazon.eventstream"}
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    "AWS_REGION": "eu-west-1",
}


def decoded(pieces: list[bytes]) -> Any:
    reader, assembler = StreamReader("p", BEDROCK, 10**6), Assembler()
    for piece in pieces:
        for event in reader.feed(piece):
            assembler.add(event)
    for event in reader.close():
        assembler.add(event)
    return assembler.completion()


def test_a_stream_reads_the_same_cut_at_every_byte() -> None:
    whole = decoded([WIRE])
    assert whole.parts == (
        ReasoningPart("think", signature="SIG", origin="bedrock"),
        TextPart("Grüß Gott 🎉"),
        ToolCallPart("t1", "f", '{"x": "ü"}'),
    )
    assert whole.finish == "tool_calls"
    assert whole.usage == Usage(11, 9, cached=4, cache_write=2, cache_write_1h=2)
    for at in range(1, len(WIRE)):
        assert decoded([WIRE[:at], WIRE[at:]]) == whole
    stop = WIRE.index(b"messageStop")
    for at in range(0, stop, 5):
        with pytest.raises(BadReply):
            decoded([WIRE[:at]])


def test_amazons_own_parser_reads_our_frames_and_ours_reads_them_damaged() -> None:
    from botocore.eventstream import EventStreamBuffer

    theirs = EventStreamBuffer()
    theirs.add_data(WIRE)
    found = [(m.headers[":event-type"], json.loads(m.payload)) for m in theirs]
    assert found == EVENTS
    for at in range(0, len(WIRE), 11):
        damaged = bytearray(WIRE)
        damaged[at] ^= 1
        with pytest.raises(BadReply):
            decoded([bytes(damaged)])


@given(st.binary(max_size=300), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_frames_or_refused_in_any_pieces(data: bytes, step: int) -> None:
    def parse(size: int) -> Any:
        parser = EventStreamParser(10**6)
        try:
            found = [
                e for at in range(0, len(data), size) for e in parser.feed(data[at : at + size])
            ]
            return [*found, *parser.close()]
        except WireError:
            return None

    assert parse(step) == parse(len(data) or 1)


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    parser = EventStreamParser(100)
    with pytest.raises(WireError, match="over 100 bytes"):
        list(parser.feed(frame("x", {"y": "z" * 200})[:20]))


@pytest.mark.parametrize("token", [None, "session/token=="])
def test_requests_are_signed_as_amazons_own_library_signs_them(
    token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/"
           "eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse")  # fmt: skip
    body, moment = (
        b'{"messages": []}',
        datetime.datetime(2026, 1, 31, 12, 0, 5, tzinfo=datetime.UTC),
    )
    asked = AWSRequest("POST", url, data=body, headers={"X-Amz-Date": "20260131T120005Z"})
    import botocore.auth

    name = "get_current_datetime"
    if hasattr(botocore.auth, name):
        monkeypatch.setattr(botocore.auth, name, lambda *_, **__: moment.replace(tzinfo=None))
    SigV4Auth(Credentials("AKID", "secret", token), "bedrock", "eu-west-1").add_auth(asked)
    ours = sign(
        AwsKeys("AKID", "secret", token), "eu-west-1", "POST", url, body, now=moment.timestamp()
    )
    assert ours["X-Amz-Date"] == asked.headers["X-Amz-Date"]
    assert ours["Authorization"] == asked.headers["Authorization"]


async def test_the_library_asks_bedrock_and_gives_reasoning_back() -> None:
    script: Any = ["hello", Raw([WIRE], headers=KIND), "next", Fail(429, retry_after=9e9)]
    with FakeProvider(script) as fake:
        gateway = make_gateway(
            providers={"bedrock": {"base_url": f"http://127.0.0.1:{fake.port}"}},
            environ=KEYS, retries={"attempts": 1},
        )  # fmt: skip
        name = "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
        said = await generate_text(name, prompt="hi", gateway=gateway)
        assert said.text == "hello" and said.cost, "the price is known"
        async with stream_text(name, prompt="x", gateway=gateway) as stream:
            assert "".join([piece async for piece in stream]) == "Grüß Gott 🎉"
        reply = await stream.reply()
        result = user(ToolResultPart("t1", (TextPart("4"),)))
        await generate_text(
            name, messages=[user("x"), reply.message, result], gateway=gateway, thinking_tokens=2048
        )
        sent = fake.received[-1]
        thought = sent.body["messages"][1]["content"][0]["reasoningContent"]
        assert thought == {"reasoningText": {"text": "think", "signature": "SIG"}}
        assert sent.body["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 2048
        assert sent.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        with pytest.raises(RateLimited):
            await generate_text(name, prompt="x", gateway=gateway)
        await gateway.close()


def test_what_is_asked_is_valid_by_amazons_own_model() -> None:
    from botocore.session import get_session
    from botocore.validate import ParamValidator

    shape = (
        get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    )
    request = Request(
        "anthropic.claude-opus-4-5", (
            user(TextPart("x", cache="1h"), ImagePart.of(b"p", "image/jpeg"),
                 FilePart.of(b"%PDF", "application/pdf", "Q3: report.pdf")),
            assistant(ToolCallPart("t1", "f", "{}")),
            user(ToolResultPart("t1", (TextPart("no"),), is_error=True)),
        ), max_tokens=9, stop=("END",), effort="low",
    )  # fmt: skip
    body = BEDROCK.encode_request(request, make_gateway().providers["bedrock"].quirks)
    report = ParamValidator().validate({"modelId": "m", **body}, shape)
    assert not report.has_errors(), report.generate_report()
    names = [next(iter(block)) for block in body["messages"][0]["content"]]
    assert names == ["text", "cachePoint", "image", "document"]
    assert body["messages"][0]["content"][3]["document"]["name"] == "Q3 report"


# --- credentials ----------------------------------------------------------------------------------


def aws_files(folder: Path) -> dict[str, str]:
    (folder / "credentials").write_text(
        "[work]\naws_access_key_id = A1\naws_secret_access_key = S1\n"
    )
    (folder / "config").write_text(
        "[profile work]\nregion = ap-south-1\n[profile tool]\n"
        'credential_process = echo \'{"Version": 1, "AccessKeyId": "A2", "SecretAccessKey": "S2"}\'\n'
    )
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


async def test_credentials_come_from_where_amazons_tools_look(tmp_path: Path) -> None:
    client, files = HttpClient(Timeouts(), trust_env=False), aws_files(tmp_path)

    async def found(**environ: str) -> AwsKeys:
        return await AwsCredentials({**files, **environ}, client).keys()

    assert (await found(AWS_PROFILE="work")).access == "A1"
    assert (await found(AWS_PROFILE="tool")).secret == "S2"
    both = await found(AWS_PROFILE="work", AWS_ACCESS_KEY_ID="A3", AWS_SECRET_ACCESS_KEY="S3",
                       AWS_SESSION_TOKEN="T3")  # fmt: skip
    assert (both.access, both.token) == ("A3", "T3")
    assert aws_source({**files, "AWS_PROFILE": "nobody"}) is None
    with pytest.raises(AuthRejected, match="no AWS credentials"):
        await found(AWS_PROFILE="nobody")
    gateway = make_gateway(environ={**files, "AWS_PROFILE": "work"})
    assert (
        gateway.providers["bedrock"].base_url == "https://bedrock-runtime.ap-south-1.amazonaws.com"
    )
    bare = make_gateway(environ=files)
    with pytest.raises(UnknownModel, match="no AWS credentials"):
        await generate_text("bedrock/m", prompt="x", gateway=bare)
    await client.close()


async def test_credentials_of_container_machine_and_web_identity(tmp_path: Path) -> None:
    import asyncio

    seen: list[tuple[str, bytes]] = []
    expiry = "2999-01-01T00:00:00Z"
    held = {"AccessKeyId": "AK", "SecretAccessKey": "SK", "Token": "TK", "Expiration": expiry}
    xml = (f"<R><Credentials><AccessKeyId>AW</AccessKeyId><SecretAccessKey>SW</SecretAccessKey>"
           f"<SessionToken>TW</SessionToken><Expiration>{expiry}</Expiration></Credentials></R>")  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().partition("content-length:")[2].split("\r\n")[0].strip() or 0)
        seen.append((head, await reader.readexactly(size)))
        path = head.split(" ")[1]
        said = {"/latest/api/token": "imds-token", "/": xml,
                "/latest/meta-data/iam/security-credentials/": "role-1"}.get(path, json.dumps(held))  # fmt: skip
        writer.write(
            f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client, home = HttpClient(Timeouts(), trust_env=False), {"HOME": str(tmp_path)}
    web = tmp_path / "token"
    web.write_text("jwt\n")

    async def found(**environ: str) -> AwsKeys:
        return await AwsCredentials({**home, **environ}, client).keys()

    container = await found(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{base}/c",
                            AWS_CONTAINER_AUTHORIZATION_TOKEN="tok")  # fmt: skip
    assert (container.access, container.token) == ("AK", "TK") and container.expires
    assert "authorization: tok" in seen[0][0].lower()
    machine = await found(AWS_EC2_METADATA_SERVICE_ENDPOINT=base)
    assert machine.access == "AK"
    assert "x-aws-ec2-metadata-token: imds-token" in seen[-1][0].lower()
    assert seen[-1][0].startswith("GET /latest/meta-data/iam/security-credentials/role-1 ")
    identity = await found(AWS_WEB_IDENTITY_TOKEN_FILE=str(web), AWS_ROLE_ARN="arn:r",
                           AWS_ENDPOINT_URL_STS=base)  # fmt: skip
    assert (identity.access, identity.token) == ("AW", "TW")
    assert b"WebIdentityToken=jwt" in seen[-1][1]
    server.close()
    await client.close()
