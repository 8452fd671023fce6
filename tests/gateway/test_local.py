"""The one real provider here: llama.cpp's server with a real small model, through the gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pydantic
import pytest

from gateway.support import Service, make_gateway
from holdfast.gateway import Gateway, generate_object, generate_text, stream_text
from holdfast.gateway.local import SERVER, _model_file, why_missing
from holdfast.gateway.messages import OutputSchema
from waiting import LIMIT, until

pytestmark = [
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
MODEL = "local/smollm2"
STEADY: Any = {"temperature": 0, "seed": 1, "max_tokens": 24}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = make_gateway()
    yield gateway
    await gateway.close()


def ask_directly(path: str, body: dict[str, Any]) -> Any:
    """The same request to the server itself, past the gateway."""
    return ask(SERVER._addresses["smollm2"] + path, body)


def ask(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as reply:
        return json.loads(reply.read())


async def test_text_and_token_counts_equal_the_servers_own(gateway: Gateway) -> None:
    reply = await generate_text(MODEL, prompt="Say hello.", gateway=gateway, **STEADY)
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Say hello."}], **STEADY}
    direct = await asyncio.to_thread(ask_directly, "/v1/chat/completions", body)
    assert reply.text == direct["choices"][0]["message"]["content"]
    assert reply.usage.input == direct["usage"]["prompt_tokens"]
    assert reply.usage.output == direct["usage"]["completion_tokens"]
    assert not reply.usage.estimated and reply.cost == 0


async def test_a_stream_is_the_same_text_with_the_same_counts(gateway: Gateway) -> None:
    whole = await generate_text(MODEL, prompt="Count to five.", gateway=gateway, **STEADY)
    async with stream_text(MODEL, prompt="Count to five.", gateway=gateway, **STEADY) as stream:
        pieces = [piece async for piece in stream]
    reply = await stream.reply()
    assert "".join(pieces) == whole.text and len(pieces) > 5
    assert (reply.usage.input, reply.usage.output) == (whole.usage.input, whole.usage.output)
    assert reply.first_token is not None and reply.first_token < reply.latency


async def test_a_json_schema_holds_the_model(gateway: Gateway) -> None:
    class City(pydantic.BaseModel):
        city: str
        people: int

    answer = await generate_object(
        MODEL, schema=City, prompt="A city in France and how many people live there, as JSON.",
        gateway=gateway, repairs=2, temperature=0, seed=1, max_tokens=40,
    )  # fmt: skip
    assert isinstance(answer.object, City) and answer.object.city
    schema = {"type": "object", "properties": {"ok": {"enum": ["yes", "no"]}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    reply = await generate_text(
        MODEL, prompt="Is the sky green?", output=OutputSchema(schema), gateway=gateway, **STEADY
    )
    assert json.loads(reply.text)["ok"] in ("yes", "no")


async def test_the_output_cap_is_kept(gateway: Gateway) -> None:
    reply = await generate_text(
        MODEL, prompt="Tell me a very long story.", max_tokens=7, gateway=gateway
    )
    assert (reply.finish, reply.usage.output) == ("length", 7)


def test_stock_clients_of_all_formats_reach_it_over_http() -> None:
    with Service(make_gateway) as service:
        with openai.OpenAI(base_url=service.url, api_key=service.secret) as client:
            chat = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Say hello."}], **STEADY
            )
            stream = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Say hello."}], stream=True,
                **STEADY,
            )  # fmt: skip
            text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
            response = client.responses.create(
                model=MODEL, input="Say hello.", temperature=0, max_output_tokens=24
            )
        with anthropic.Anthropic(base_url=service.anthropic_url, api_key=service.secret) as other:
            message = other.messages.create(
                model=MODEL, messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=24,
            )  # fmt: skip
            with other.messages.stream(
                model=MODEL, messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=24,
            ) as anthropic_stream:  # fmt: skip
                streamed = anthropic_stream.get_final_message()
        calls = service.calls()
    assert chat.choices[0].message.content == text
    assert response.output_text and message.content and streamed.content
    assert chat.usage is not None
    assert [call.status for call in calls] == ["completed"] * 5
    assert {call.end.input_tokens for call in calls} == {chat.usage.prompt_tokens}
    assert not any(call.end.estimated for call in calls)


def test_an_answer_nobody_limited_comes_to_an_end() -> None:
    short = "import holdfast.gateway.local as s; s.LONGEST = 12; s.main()"
    model = _model_file("smollm2")
    with subprocess.Popen(
        [sys.executable, "-c", short, str(model), "smollm2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        body = {"messages": [{"role": "user", "content": "Tell me a very long story."}]}
        found = ask(address + "/v1/chat/completions", body)
        longer = ask(address + "/v1/chat/completions", {**body, "max_tokens": 16})
        server.communicate()
    assert found["usage"]["completion_tokens"] == 12
    assert longer["usage"]["completion_tokens"] == 16


CALLER = """
import asyncio, sys
from holdfast.gateway import generate_text
from holdfast.gateway.local import SERVER
asyncio.run(generate_text("local/smollm2", prompt="hi", max_tokens=2))
print(SERVER._processes[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_with_whoever_started_it(tmp_path: Path, how: int) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HOLDFAST_STORE": str(tmp_path / "store.db")},
    )  # fmt: skip
    assert caller.stdout is not None
    server = int(caller.stdout.readline())
    os.kill(server, 0)
    caller.send_signal(how)
    caller.communicate()

    def gone() -> bool:
        try:
            state = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"

    until(gone)
