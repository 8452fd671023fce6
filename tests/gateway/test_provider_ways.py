"""What real providers do beside their format: thinking apart, parts, signatures, odd streams."""

from __future__ import annotations

import json
import socket
from typing import Any

import openai
import pytest

from gateway.hostile import DONE, FINISH, JSON, SSE, chunk
from gateway.support import Service, fake_providers, make_gateway
from holdfast.errors import ProviderError, ProviderUnavailable, RateLimited, UsageError
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Quirks
from holdfast.gateway.messages import Message, Request, tool_result, user
from holdfast.gateway.reply import Reply
from holdfast.testing.providers import FakeProvider, Raw

THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "deep"}]}


def body(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "x", "model": "m", "choices": [choice], **more}


def whole(data: object) -> Raw:
    return Raw([json.dumps(data).encode()], headers=JSON)


async def ask(raw: Raw, *, stream: bool = False, format: str = "chat") -> Reply:
    with FakeProvider([raw]) as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, format))
        try:
            if not stream:
                return await generate_text(f"fake-{format}/m", prompt="hi", gateway=gateway)
            async with stream_text(f"fake-{format}/m", prompt="hi", gateway=gateway) as stream_:
                return await stream_.reply()
        finally:
            await gateway.close()


async def test_thinking_that_is_only_in_the_total_counts_as_output() -> None:
    usage = {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}
    reply = await ask(whole(body({"content": "hi"}, usage=usage)))
    assert (reply.usage.input, reply.usage.output, reply.usage.reasoning) == (35, 74, 62)


@pytest.mark.parametrize("stream", [True, False])
async def test_content_in_parts_is_text_and_reasoning(stream: bool) -> None:
    parts = [THINKING, {"type": "text", "text": "4"}]
    raw = whole(body({"content": parts}))
    if stream:
        first = chunk("", delta={"content": [THINKING]})
        raw = Raw([first, chunk("4"), FINISH, DONE], headers=SSE)
    reply = await ask(raw, stream=stream)
    assert (reply.text, reply.reasoning) == ("4", "deep")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_signature_of_a_tool_call_is_sent_back(stream: bool) -> None:
    call = {
        "index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "SIG+/="}},
    }  # fmt: skip
    raw = whole(body({"content": None, "tool_calls": [call]}))
    if stream:
        raw = Raw([chunk("", delta={"tool_calls": [call]}), FINISH, DONE], headers=SSE)
    reply = await ask(raw, stream=stream)
    (asked,) = reply.tool_calls
    turns: tuple[Message, ...] = (user("hi"), reply.message, tool_result(asked.id, "noon"))
    sent = FORMATS["chat"].encode_request(Request("m", turns), Quirks())["messages"]
    (back,) = sent[1]["tool_calls"]
    assert back["extra_content"] == call["extra_content"]
    assert back["id"] == sent[2]["tool_call_id"] == "c1"


def sent_back(reply: Reply) -> Any:
    (asked,) = reply.tool_calls
    turns: tuple[Message, ...] = (user("hi"), reply.message, tool_result(asked.id, "noon"))
    return FORMATS["chat"].encode_request(Request("m", turns), Quirks())["messages"][1]


CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DETAILS = [
    {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": "hm, so",
     "signature": "RSIG+/="},
    {"type": "reasoning.encrypted", "index": 1, "id": "r1", "data": "AAECAw=="},
]  # fmt: skip


async def test_openrouters_account_of_the_reasoning_is_sent_back() -> None:
    said = {"content": None, "reasoning": "hm, so", "reasoning_details": DETAILS,
            "tool_calls": [CALL]}  # fmt: skip
    reply = await ask(whole(body(said)))
    assert reply.reasoning == "hm, so"
    back = sent_back(reply)
    assert back["reasoning_details"] == DETAILS and "reasoning_content" not in back


async def test_a_streamed_account_of_the_reasoning_is_put_together() -> None:
    text = {"type": "reasoning.text", "index": 0}
    deltas: list[dict[str, Any]] = [
        {"reasoning": "hm,", "reasoning_details": [
            {**text, "format": "anthropic-claude-v1", "text": "hm,"}]},
        {"reasoning": " so", "reasoning_details": [{**text, "text": " so"}]},
        {"reasoning_details": [{**text, "signature": "RSIG+/="}]},
        {"content": "I will look."},
        # Some come with the call, long after the words.
        {"reasoning_details": [DETAILS[1]], "tool_calls": [CALL]},
    ]  # fmt: skip
    pieces = [chunk("", delta=delta) for delta in deltas]
    reply = await ask(Raw([*pieces, FINISH, DONE], headers=SSE), stream=True)
    assert (reply.reasoning, reply.text) == ("hm, so", "I will look.")
    assert sent_back(reply)["reasoning_details"] == DETAILS


@pytest.mark.parametrize("details", ["x", 3, [], None, {}, [3, None]])
async def test_an_account_that_is_none_is_left_alone(details: Any) -> None:
    delta = {"reasoning_details": details, "tool_calls": [CALL]}
    reply = await ask(Raw([chunk("", delta=delta), FINISH, DONE], headers=SSE), stream=True)
    assert "reasoning_details" not in sent_back(reply)


async def test_two_streamed_calls_with_one_number_and_two_ids_are_two_calls() -> None:
    def call(identity: str, name: str, arguments: str) -> bytes:
        function = {"name": name, "arguments": arguments}
        one = {"index": 0, "id": identity, "type": "function", "function": function}
        return chunk("", delta={"tool_calls": [one]})

    raw = Raw([call("a", "f", '{"x":1}'), call("b", "g", '{"y":2}'), FINISH, DONE], headers=SSE)
    reply = await ask(raw, stream=True)
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("a", "f", '{"x":1}'), ("b", "g", '{"y":2}'),
    ]  # fmt: skip
    assert reply.finish == "tool_calls"


async def test_a_byte_order_mark_does_not_cost_the_first_event() -> None:
    raw = Raw([b"\xef\xbb\xbf" + chunk("one "), chunk("two"), FINISH, DONE], headers=SSE)
    assert (await ask(raw, stream=True)).text == "one two"


def test_a_responses_stream_may_end_in_done() -> None:
    response = {
        "id": "r", "object": "response", "status": "completed", "model": "m", "output": [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }  # fmt: skip
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.completed", "response": response},
    ]
    sent = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events) + DONE
    with (
        FakeProvider([Raw([sent], headers=SSE)]) as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url, "responses"))) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as client,
    ):
        stream = client.responses.create(model="fake-responses/m", input="hi", stream=True)
        assert [event.type for event in stream] == ["response.created", "response.completed"]
        assert [call.status for call in service.calls()] == ["completed"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "model overloaded", "code": 502}, ProviderUnavailable),
        ({"message": "model overloaded", "code": 429}, RateLimited),
        ({"message": "model overloaded", "code": "strange"}, ProviderUnavailable),
    ],
)
async def test_an_error_with_status_200_is_told_in_the_providers_words_and_costs_nothing(
    error: dict[str, Any], kind: type[ProviderError]
) -> None:
    with FakeProvider([whole({"error": error})] * 3) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"), retries={"attempts": 1},
            prices={"fake-chat/*": {"input": 1, "output": 1}},
        )  # fmt: skip
        with pytest.raises(kind, match="model overloaded"):
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        (call,) = await gateway.ledger.calls()
        assert call.end is not None and call.end.charge == 0
        await gateway.close()


async def test_a_dead_address_is_named_with_the_reason_also_when_it_is_left_alone() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    gateway = make_gateway(
        providers=fake_providers(f"http://{place}/v1", "chat"),
        retries={"attempts": 1}, breaker={"failures": 1},
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(ProviderUnavailable) as caught:
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert place in caught.value.message
        assert "connection refused" in caught.value.message
    await gateway.close()


async def test_stop_sequences_are_refused_where_the_providers_format_has_none() -> None:
    with FakeProvider(["never"]) as fake:
        gateway = make_gateway(providers=fake_providers(fake.url))
        with pytest.raises(UsageError, match="no stop sequences"):
            await generate_text("fake-responses/m", prompt="hi", stop=["x"], gateway=gateway)
        await gateway.close()
        with (
            Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
            openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as client,
            pytest.raises(openai.BadRequestError, match="no stop sequences"),
        ):
            client.chat.completions.create(
                model="fake-responses/m", messages=[{"role": "user", "content": "hi"}], stop="x"
            )
        assert fake.hits == 0


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("chat/completions", {"n": 2}),
        ("chat/completions", {"logprobs": True}),
        ("chat/completions", {"frequency_penalty": 0.5}),
        ("chat/completions", {"presence_penalty": -1}),
        ("chat/completions", {"top_k": 40}),
        ("messages", {"top_k": 40}),
        ("chat/completions", {"functions": [{"name": "f"}]}),
        ("chat/completions", {"modalities": ["audio"]}),
        ("messages", {"mcp_servers": [{"type": "url", "url": "https://e.com", "name": "a"}]}),
        (
            "chat/completions",
            {"n": 1, "logprobs": False, "modalities": ["text"], "frequency_penalty": 0.0},
        ),
    ],
)
async def test_what_cannot_be_translated_is_refused_not_dropped(
    path: str, field: dict[str, Any]
) -> None:
    import httpx2

    from holdfast.gateway.service.app import GatewayApp

    gateway = make_gateway()
    app: Any = GatewayApp(gateway, open_to_all=True)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://gateway"
    ) as client:
        asked = {"model": "scripted/echo", "max_tokens": 5, **field}
        asked["messages"] = [{"role": "user", "content": "x"}]
        answer = await client.post(f"/v1/{path}", json=asked)
        if field.get("n") == 1:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 400 and next(iter(field)) in answer.text
    await gateway.close()
