"""Stock clients against our HTTP endpoints, on every pairing of client and provider format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pydantic
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.messages import ImagePart, ReasoningPart, Request, TextPart, ToolResultPart
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.testing.providers import FakeProvider

FORMATS = ["chat", "responses", "anthropic"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"


def answer(request: Request) -> Any:
    """One fake for all tests: it answers by what it is asked."""
    asked = request.messages[-1].text
    if asked == "tools":
        tools = [("weather", {"city": "Oslo"}), ("weather", {"city": "Rome — ü"})]
        return Say("Let me look.", tools=tools, usage=Usage(50, 20))
    if asked == "json":
        assert request.output is not None and request.output.schema is not None
        assert request.output.schema["required"] == ["city"]
        return Say(json.dumps({"city": "Oslo"}))
    if asked == "refuse":
        return Say(refusal="I can't help with that.")
    if asked == "long":
        return Say("cut off", finish="length")
    if asked == "reason":
        return Say("42", reasoning="six by seven")
    if asked == "picture":
        image = request.messages[-1].parts[1]
        assert isinstance(image, ImagePart)
        return Say(f"{image.media_type} {len(image.data or '')}")
    if asked == "bad":
        return Fail(400, "the request is wrong")
    if asked == "limited":
        return Fail(429, "slow down", retry_after=0.01)
    if asked == "broken":
        return Fail("cut")
    if asked == "event":
        return Fail("error_event", "too much to do")
    results = [p for m in request.messages for p in m.parts if isinstance(p, ToolResultPart)]
    if results:
        return Say(" and ".join(result.text for result in results))
    return Say("Hello — grüß Gott, 你好! 🎉", usage=Usage(11, 7, cached=4, reasoning=0))


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(answer) as fake:
        yield fake


@pytest.fixture(scope="module")
def service(fake: FakeProvider) -> Iterator[Service]:
    def make() -> Any:
        return make_gateway(
            providers=fake_providers(fake.url),
            retries={"attempts": 2, "base": 0.01},
            prices={f"fake-{name}/*": {"input": 1, "output": 2} for name in FORMATS},
        )

    with Service(make) as service:
        yield service


@pytest.fixture(params=FORMATS)
def provider(request: pytest.FixtureRequest) -> str:
    return f"fake-{request.param}"


def openai_client(service: Service) -> openai.OpenAI:
    return openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0)


def anthropic_client(service: Service) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=service.anthropic_url, api_key=service.secret, max_retries=0
    )


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "w", "parameters": SCHEMA}}
]
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": "weather", "description": "w", "parameters": SCHEMA}
]
ANTHROPIC_TOOLS: Any = [{"name": "weather", "description": "w", "input_schema": SCHEMA}]


class City(pydantic.BaseModel):
    city: str


# --- OpenAI chat completions -------------------------------------------------------------------


def test_chat_text_and_usage(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.chat.completions.create(model=f"{provider}/m", messages=say("hi"))
    assert reply.choices[0].message.content == "Hello — grüß Gott, 你好! 🎉"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (11, 7)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 4


def test_chat_stream(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        stream = client.chat.completions.create(
            model=f"{provider}/m", messages=say("hi"), stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hello — grüß Gott, 你好! 🎉"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 18
    assert len(chunks) > 4


def test_chat_stream_without_asking_for_usage_gets_none(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        stream = client.chat.completions.create(
            model=f"{provider}/m", messages=say("hi"), stream=True
        )
        chunks = list(stream)
    assert all(chunk.choices for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)
    call = service.calls(limit=1)[0]
    assert (call.end.input_tokens, call.end.output_tokens, call.end.estimated) == (11, 7, False)


def test_chat_parallel_tools_and_their_results(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.chat.completions.create(
            model=f"{provider}/m", messages=say("tools"), tools=CHAT_TOOLS
        )
        message = reply.choices[0].message
        assert reply.choices[0].finish_reason == "tool_calls"
        assert message.tool_calls is not None and len(message.tool_calls) == 2
        cities = [json.loads(c.function.arguments)["city"] for c in message.tool_calls]  # type: ignore[union-attr]
        assert cities == ["Oslo", "Rome — ü"]
        history: list[Any] = [*say("tools"), message.model_dump(exclude_none=True)]
        for call, said in zip(message.tool_calls, ("rain", "sun"), strict=True):
            history.append({"role": "tool", "tool_call_id": call.id, "content": said})
        done = client.chat.completions.create(
            model=f"{provider}/m", messages=history, tools=CHAT_TOOLS
        )
    assert done.choices[0].message.content == "rain and sun"


def test_chat_streamed_tools(service: Service, provider: str) -> None:
    with (
        openai_client(service) as client,
        client.chat.completions.stream(
            model=f"{provider}/m", messages=say("tools"), tools=CHAT_TOOLS
        ) as stream,
    ):
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Let me look."
    assert [json.loads(c.function.arguments)["city"] for c in message.tool_calls or []] == [
        "Oslo",
        "Rome — ü",
    ]


def test_chat_structured_output(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.chat.completions.parse(
            model=f"{provider}/m", messages=say("json"), response_format=City
        )
    assert reply.choices[0].message.parsed == City(city="Oslo")


def test_chat_picture(service: Service, provider: str) -> None:
    content: Any = [
        {"type": "text", "text": "picture"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    with openai_client(service) as client:
        reply = client.chat.completions.create(
            model=f"{provider}/m", messages=[{"role": "user", "content": content}]
        )
    assert reply.choices[0].message.content == f"image/png {len(PNG)}"


@pytest.mark.parametrize(
    ("asked", "error", "status"),
    [("bad", openai.BadRequestError, 400), ("limited", openai.RateLimitError, 429)],
)
def test_chat_errors(
    service: Service, provider: str, asked: str, error: type[openai.APIStatusError], status: int
) -> None:
    with openai_client(service) as client, pytest.raises(error) as caught:
        client.chat.completions.create(model=f"{provider}/m", messages=say(asked))
    assert caught.value.status_code == status
    assert "request is wrong" in str(caught.value) or "slow down" in str(caught.value)


@pytest.mark.parametrize("asked", ["broken", "event"])
def test_chat_stream_that_breaks_is_an_error(service: Service, provider: str, asked: str) -> None:
    with openai_client(service) as client, pytest.raises(openai.APIError):
        for _ in client.chat.completions.create(
            model=f"{provider}/m", messages=say(asked), stream=True
        ):
            pass


def test_chat_finish_reasons(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        long = client.chat.completions.create(model=f"{provider}/m", messages=say("long"))
        assert long.choices[0].finish_reason == "length"
        refused = client.chat.completions.create(model=f"{provider}/m", messages=say("refuse"))
    message = refused.choices[0].message
    assert (message.refusal or message.content) == "I can't help with that."


# --- OpenAI responses --------------------------------------------------------------------------


def test_responses_text_and_usage(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.responses.create(model=f"{provider}/m", input="hi", instructions="be kind")
    assert reply.output_text == "Hello — grüß Gott, 你好! 🎉"
    assert reply.status == "completed"
    assert reply.usage is not None and reply.usage.input_tokens == 11
    assert reply.usage.input_tokens_details.cached_tokens == 4


def test_responses_stream(service: Service, provider: str) -> None:
    with (
        openai_client(service) as client,
        client.responses.stream(model=f"{provider}/m", input="hi") as stream,
    ):
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        whole = stream.get_final_response()
    assert "".join(pieces) == whole.output_text == "Hello — grüß Gott, 你好! 🎉"
    assert whole.usage is not None and whole.usage.total_tokens == 18


def test_responses_tools_and_their_results(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.responses.create(model=f"{provider}/m", input="tools", tools=RESPONSES_TOOLS)
        calls = [item for item in reply.output if item.type == "function_call"]
        assert [json.loads(call.arguments)["city"] for call in calls] == ["Oslo", "Rome — ü"]
        history: list[Any] = say("tools")
        history += [item.model_dump(exclude_none=True) for item in reply.output]
        history += [
            {"type": "function_call_output", "call_id": call.call_id, "output": said}
            for call, said in zip(calls, ("rain", "sun"), strict=True)
        ]
        done = client.responses.create(model=f"{provider}/m", input=history, tools=RESPONSES_TOOLS)
    assert done.output_text == "rain and sun"


def test_responses_streamed_tools(service: Service, provider: str) -> None:
    with (
        openai_client(service) as client,
        client.responses.stream(
            model=f"{provider}/m", input="tools", tools=RESPONSES_TOOLS
        ) as stream,
    ):
        whole = stream.get_final_response()
    calls = [item for item in whole.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Oslo", "Rome — ü"]


def test_responses_structured_output(service: Service, provider: str) -> None:
    with openai_client(service) as client:
        reply = client.responses.parse(model=f"{provider}/m", input="json", text_format=City)
    assert reply.output_parsed == City(city="Oslo")


def test_responses_picture_and_incomplete(service: Service, provider: str) -> None:
    content: Any = [
        {"type": "input_text", "text": "picture"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
    ]
    with openai_client(service) as client:
        reply = client.responses.create(
            model=f"{provider}/m", input=[{"role": "user", "content": content}]
        )
        assert reply.output_text == f"image/png {len(PNG)}"
        cut = client.responses.create(model=f"{provider}/m", input="long")
    assert cut.status == "incomplete" and cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("asked", ["broken", "event"])
def test_responses_stream_that_breaks_is_an_error(
    service: Service, provider: str, asked: str
) -> None:
    with openai_client(service) as client, pytest.raises(openai.APIError):
        for _ in client.responses.create(model=f"{provider}/m", input=asked, stream=True):
            pass


def test_responses_errors(service: Service, provider: str) -> None:
    with openai_client(service) as client, pytest.raises(openai.BadRequestError, match="is wrong"):
        client.responses.create(model=f"{provider}/m", input="bad")


# --- Anthropic messages ------------------------------------------------------------------------


def test_anthropic_text_and_usage(service: Service, provider: str) -> None:
    with anthropic_client(service) as client:
        reply = client.messages.create(
            model=f"{provider}/m", max_tokens=100, system="be kind", messages=say("hi")
        )
    assert isinstance(reply.content[0], anthropic.types.TextBlock)
    assert reply.content[0].text == "Hello — grüß Gott, 你好! 🎉"
    assert reply.stop_reason == "end_turn"
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens) == (7, 4)
    assert reply.usage.output_tokens == 7


def test_anthropic_stream(service: Service, provider: str) -> None:
    with (
        anthropic_client(service) as client,
        client.messages.stream(model=f"{provider}/m", max_tokens=100, messages=say("hi")) as stream,
    ):
        pieces = list(stream.text_stream)
        whole = stream.get_final_message()
    assert "".join(pieces) == "Hello — grüß Gott, 你好! 🎉"
    assert len(pieces) > 1
    assert whole.usage.output_tokens == 7


def test_anthropic_tools_and_their_results(service: Service, provider: str) -> None:
    with anthropic_client(service) as client:
        reply = client.messages.create(
            model=f"{provider}/m", max_tokens=9, messages=say("tools"), tools=ANTHROPIC_TOOLS
        )
        assert reply.stop_reason == "tool_use"
        uses = [b for b in reply.content if b.type == "tool_use"]
        assert [use.input for use in uses] == [{"city": "Oslo"}, {"city": "Rome — ü"}]
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": said}
            for use, said in zip(uses, ("rain", "sun"), strict=True)
        ]
        history: list[Any] = [
            *say("tools"),
            {
                "role": "assistant",
                "content": [b.model_dump(exclude_none=True) for b in reply.content],
            },
            {"role": "user", "content": results},
        ]
        done = client.messages.create(
            model=f"{provider}/m", max_tokens=9, messages=history, tools=ANTHROPIC_TOOLS
        )
    assert isinstance(done.content[0], anthropic.types.TextBlock)
    assert done.content[0].text == "rain and sun"


def test_anthropic_streamed_tools_and_reasoning(service: Service, provider: str) -> None:
    with anthropic_client(service) as client:
        with client.messages.stream(
            model=f"{provider}/m", max_tokens=9, messages=say("tools"), tools=ANTHROPIC_TOOLS
        ) as stream:
            whole = stream.get_final_message()
        uses = [b for b in whole.content if b.type == "tool_use"]
        assert [use.input for use in uses] == [{"city": "Oslo"}, {"city": "Rome — ü"}]
        with client.messages.stream(
            model=f"{provider}/m", max_tokens=9, messages=say("reason")
        ) as stream:
            whole = stream.get_final_message()
    thoughts = [b.thinking for b in whole.content if b.type == "thinking"]
    assert thoughts == ["six by seven"]


def test_anthropic_structured_output(service: Service, provider: str) -> None:
    with anthropic_client(service) as client:
        reply = client.messages.parse(
            model=f"{provider}/m", max_tokens=9, messages=say("json"), output_format=City
        )
    assert reply.parsed_output == City(city="Oslo")


def test_anthropic_picture_and_stop_reason(service: Service, provider: str) -> None:
    content: Any = [
        {"type": "text", "text": "picture"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]
    with anthropic_client(service) as client:
        reply = client.messages.create(
            model=f"{provider}/m", max_tokens=9, messages=[{"role": "user", "content": content}]
        )
        assert isinstance(reply.content[0], anthropic.types.TextBlock)
        assert reply.content[0].text == f"image/png {len(PNG)}"
        cut = client.messages.create(model=f"{provider}/m", max_tokens=9, messages=say("long"))
    assert cut.stop_reason == "max_tokens"


@pytest.mark.parametrize("asked", ["broken", "event"])
def test_anthropic_stream_that_breaks_is_an_error(
    service: Service, provider: str, asked: str
) -> None:
    with anthropic_client(service) as client, pytest.raises(anthropic.APIError):
        for _ in client.messages.create(
            model=f"{provider}/m", max_tokens=9, messages=say(asked), stream=True
        ):
            pass


@pytest.mark.parametrize(
    ("asked", "error"),
    [("bad", anthropic.BadRequestError), ("limited", anthropic.RateLimitError)],
)
def test_anthropic_errors(
    service: Service, provider: str, asked: str, error: type[anthropic.APIStatusError]
) -> None:
    with anthropic_client(service) as client, pytest.raises(error):
        client.messages.create(model=f"{provider}/m", max_tokens=9, messages=say(asked))


# --- same format: what is parsed is equal ------------------------------------------------------


def without(model: pydantic.BaseModel, *names: str) -> Any:
    data = model.model_dump()
    for name in ("created", "created_at", *names):
        data.pop(name, None)
    return data


@pytest.mark.parametrize("asked", ["hi", "tools", "reason", "refuse", "long"])
def test_same_format_parses_to_the_same_as_from_the_provider(
    service: Service, fake: FakeProvider, asked: str
) -> None:
    with openai_client(service) as ours, openai.OpenAI(base_url=fake.url, api_key="k") as theirs:
        assert without(
            ours.chat.completions.create(model="fake-chat/m", messages=say(asked))
        ) == without(theirs.chat.completions.create(model="m", messages=say(asked)))
        assert without(ours.responses.create(model="fake-responses/m", input=asked)) == without(
            theirs.responses.create(model="m", input=asked)
        )
        mine, direct = (
            [
                without(chunk)
                for chunk in client.chat.completions.create(
                    model=model, messages=say(asked), stream=True
                )
            ]
            for client, model in ((ours, "fake-chat/m"), (theirs, "m"))
        )
        assert mine == direct
    with (
        anthropic_client(service) as ours_a,
        anthropic.Anthropic(base_url=fake.anthropic_url, api_key="k") as theirs_a,
    ):
        assert without(
            ours_a.messages.create(model="fake-anthropic/m", max_tokens=9, messages=say(asked))
        ) == without(theirs_a.messages.create(model="m", max_tokens=9, messages=say(asked)))


def test_reasoning_survives_a_client_of_another_format() -> None:
    """A signature Anthropic must see again travels through a client that speaks responses."""
    seen: list[Request] = []

    def answer(request: Request) -> Any:
        from holdfast.gateway.reply import Completion

        seen.append(request)
        part = ReasoningPart("deep", signature="sig-1", origin="anthropic")
        return Completion((part, TextPart("ok")), "stop", "m", Usage(1, 1), "id")

    with (
        FakeProvider(answer) as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
        openai_client(service) as client,
    ):
        first = client.responses.create(model="fake-anthropic/m", input="hi")
        history: list[Any] = say("hi")
        history += [item.model_dump(exclude_none=True) for item in first.output]
        history += say("and now?")
        client.responses.create(model="fake-anthropic/m", input=history)
    kept = [p for m in seen[1].messages for p in m.parts if isinstance(p, ReasoningPart)]
    assert [(part.text, part.signature) for part in kept] == [("deep", "sig-1")]
