"""Recorded calls can be shown as messages, whatever way they came in."""

from __future__ import annotations

import openai
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway import ImagePart, Say, ScriptedModel, generate_text, tool_result, user
from holdfast.gateway.canonical_json import recorded_reply, recorded_request
from holdfast.gateway.messages import TextPart
from holdfast.testing.providers import FakeProvider


async def test_a_library_call_reads_back_as_it_was() -> None:
    gateway = make_gateway()
    messages = [user("look", ImagePart.of(b"png", "image/png")), tool_result("c", "done")]
    with ScriptedModel("m", [Say("seen", reasoning="hm", tools=[("f", {"a": 1})])]):
        reply = await generate_text(
            "scripted/m", system="s", messages=messages, max_tokens=5, gateway=gateway
        )
    (call,) = await gateway.ledger.calls()
    request, answer = recorded_request(call), recorded_reply(call)
    assert request is not None and answer is not None
    assert request.messages[1:] == tuple(messages)
    assert request.max_tokens == 5
    assert answer.parts == reply.parts
    await gateway.close()


@pytest.mark.parametrize("provider", ["fake-chat", "fake-anthropic"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_http_call_reads_back_too(provider: str, stream: bool) -> None:
    with (
        FakeProvider(lambda _: Say("hello there")) as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret) as client,
    ):
        reply = client.responses.create(model=f"{provider}/m", input="hi", stream=stream)
        if stream:
            list(reply)  # type: ignore[arg-type]
        (call,) = service.calls()
        request, answer = recorded_request(call), recorded_reply(call)
    assert request is not None and request.messages == (user("hi"),)
    assert answer is not None and answer.parts == (TextPart("hello there"),)
