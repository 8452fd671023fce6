"""The codecs against the wire as providers document it, and against themselves."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import BadReply
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format, Quirks
from holdfast.gateway.formats.json_fields import WireError
from holdfast.gateway.formats.sse import SseParser
from holdfast.gateway.messages import (
    ImagePart,
    Message,
    Origin,
    OutputSchema,
    ReasoningPart,
    RefusalPart,
    Request,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    assistant,
    system,
    tool_result,
    user,
)
from holdfast.gateway.providers import KNOWN
from holdfast.gateway.reply import Assembler, Completion, FinishReason, Usage, as_events
from holdfast.gateway.upstream import StreamReader

CHAT, RESPONSES, ANTHROPIC = (FORMATS[cast(Origin, n)] for n in ("chat", "responses", "anthropic"))


# --- replies as documented -----------------------------------------------------------------------


def test_a_documented_chat_reply() -> None:
    body = {
        "id": "chatcmpl-B9MBs8", "object": "chat.completion", "created": 1741569952,
        "model": "gpt-4.1-2025-04-14", "service_tier": "default",
        "choices": [{"index": 0, "logprobs": None, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": None, "refusal": None, "annotations": [],
            "tool_calls": [{"id": "call_abc", "type": "function", "function": {
                "name": "get_weather", "arguments": '{"location": "Boston, MA"}'}}]}}],
        "usage": {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99,
                  "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
                  "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0}},
    }  # fmt: skip
    found = CHAT.decode_reply(body)
    assert found.parts == (ToolCallPart("call_abc", "get_weather", '{"location": "Boston, MA"}'),)
    assert found.finish == "tool_calls"
    assert found.usage == Usage(82, 17, cached=64, reasoning=5)


def test_a_documented_responses_reply() -> None:
    body: dict[str, Any] = {
        "id": "resp_67cc", "object": "response", "created_at": 1741476542, "status": "completed",
        "error": None, "incomplete_details": None, "model": "gpt-5",
        "output": [
            {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA",
             "summary": [{"type": "summary_text", "text": "Thinking"}]},
            {"type": "message", "id": "msg_67cc", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "In a grove", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
             "arguments": "{}", "status": "completed"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ],
        "usage": {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 10},
                  "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 40},
                  "total_tokens": 123},
    }  # fmt: skip
    found = RESPONSES.decode_reply(body)
    assert found.parts == (
        ReasoningPart("Thinking", encrypted="gAAAA", item="rs_1", origin="responses"),
        TextPart("In a grove"),
        ToolCallPart("call_1", "f", "{}", item="fc_1"),
    )
    assert found.finish == "tool_calls"
    assert found.usage == Usage(36, 87, cached=10, reasoning=40, searches=1)


def test_a_documented_anthropic_reply() -> None:
    body: dict[str, Any] = {
        "id": "msg_01X", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [
            {"type": "thinking", "thinking": "Let me see", "signature": "EqQBCg"},
            {"type": "redacted_thinking", "data": "EmwKAh"},
            {"type": "text", "text": "I'll check."},
            {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"a": [1]}},
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 100, "cache_creation_input_tokens": 30,
                  "cache_read_input_tokens": 1000, "output_tokens": 50,
                  "cache_creation": {"ephemeral_5m_input_tokens": 10,
                                     "ephemeral_1h_input_tokens": 20}},
    }  # fmt: skip
    found = ANTHROPIC.decode_reply(body)
    assert found.parts == (
        ReasoningPart("Let me see", signature="EqQBCg", origin="anthropic"),
        ReasoningPart(encrypted="EmwKAh", origin="anthropic"),
        TextPart("I'll check."),
        ToolCallPart("toolu_01", "get_weather", '{"a": [1]}'),
    )
    assert found.finish == "tool_calls"
    assert found.usage == Usage(1130, 50, cached=1000, cache_write=30, cache_write_1h=20)


ANTHROPIC_STREAM = """event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude-x","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hmm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\": 1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: something_new
data: {"type":"something_new","payload":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"""


def test_a_documented_anthropic_stream() -> None:
    found = read(ANTHROPIC, ANTHROPIC_STREAM.encode())
    assert found == Completion(
        (ReasoningPart("Hmm", signature="Eq", origin="anthropic"),
         ToolCallPart("toolu_1", "f", '{"a": 1}')),
        "tool_calls", "claude-x", Usage(30, 15, cached=5), "msg_1",
    )  # fmt: skip


def test_an_anthropic_stream_without_its_start_is_refused() -> None:
    """As llama.cpp's server sends it now and then."""
    headless = ANTHROPIC_STREAM.partition("\n\n")[2]
    with pytest.raises(BadReply, match="before message_start"):
        read(ANTHROPIC, headless.encode())


CHAT_STREAM = """data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

: OPENROUTER PROCESSING

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\""}}]},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]},"finish_reason":null}]}

data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c1","model":"gpt-x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}

data: [DONE]

"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_documented_chat_stream(newline: str) -> None:
    found = read(CHAT, CHAT_STREAM.replace("\n", newline).encode())
    assert found == Completion(
        (ReasoningPart("hm", origin="chat"), TextPart("Hi"),
         ToolCallPart("call_1", "f", '{"a": 1}'), ToolCallPart("call_2", "g", "{}")),
        "tool_calls", "gpt-x", Usage(9, 3), "c1",
    )  # fmt: skip


def read(format: Format, data: bytes, step: int = 7) -> Completion:
    """Decode a stream that arrives in pieces of any size."""
    reader, assembler = StreamReader("p", format, 10**6), Assembler()
    for at in range(0, len(data), step):
        for event in reader.feed(data[at : at + step]):
            assembler.add(event)
    for event in reader.close():
        assembler.add(event)
    return assembler.completion()


# --- there and back -------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
NAME = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
CALLS = st.builds(
    ToolCallPart, st.from_regex(r"call_[a-z0-9]{4}", fullmatch=True), NAME,
    st.dictionaries(NAME, st.integers() | TEXT, max_size=3).map(json.dumps),
)  # fmt: skip
FINISHES: st.SearchStrategy[FinishReason] = st.sampled_from(["stop", "length"])


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    parts: list[Any] = [TextPart(draw(TEXT))] if draw(st.booleans()) else []
    calls = draw(st.lists(CALLS, max_size=3, unique_by=lambda call: call.id))
    parts += calls
    finish = "tool_calls" if calls else draw(FINISHES)
    cached = draw(st.integers(0, 50))
    usage = Usage(cached + draw(st.integers(0, 99)), draw(st.integers(0, 99)), cached=cached)
    return Completion(tuple(parts), finish, "m", usage, "id-1")


def comparable(completion: Completion) -> Any:
    calls = [(p.id, p.name, json.loads(p.arguments)) for p in completion.parts
             if isinstance(p, ToolCallPart)]  # fmt: skip
    return completion.text, calls, completion.finish, completion.usage


@pytest.mark.parametrize("name", list(FORMATS))
@given(completions(), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_answers_survive_every_format_whole_and_streamed(
    name: Origin, completion: Completion, step: int
) -> None:
    format, asked = FORMATS[name], Request("m", (user("x"),), stream=True)
    whole = format.decode_reply(json.loads(json.dumps(format.encode_reply(completion, asked))))
    assert comparable(whole) == comparable(completion)
    asked.extra["chat"] = {"stream_options": {"include_usage": True}}
    encoder = format.encoder(asked)
    data = b"".join(encoder.encode(event) for event in as_events(completion))
    assert comparable(read(format, data, step)) == comparable(completion)


CONVERSATION = (
    system("be kind"),
    user("look", ImagePart.of(b"png", "image/png")),
    assistant("call", ToolCallPart("call_1", "f", '{"a": 1}'), ToolCallPart("call_2", "g", "{}")),
    Message("tool", (ToolResultPart("call_1", (TextPart("one"),)),
                     ToolResultPart("call_2", (TextPart("two"),)))),
    assistant("done"),
    user("thanks"),
)  # fmt: skip


@pytest.mark.parametrize("name", list(FORMATS))
def test_requests_survive_every_format(name: Origin) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = Request(
        "m", CONVERSATION, tools=(Tool("f", "does f", schema),),
        tool_choice=ToolChoice("tool", "f"), parallel_tools=False, max_tokens=77, temperature=0.5,
        output=OutputSchema(schema), effort="high", user="u1", stream=True,
    )  # fmt: skip
    body = json.loads(json.dumps(FORMATS[name].encode_request(request, Quirks())))
    found = FORMATS[name].decode_request(body)
    assert merged(found.messages) == merged(request.messages)
    lacking = {  # the model and streaming are in the address, thinking is a number or the model's
        "gemini": ("parallel_tools", "effort", "user", "stream"),
        "bedrock": ("parallel_tools", "effort", "user", "stream"),
        "cohere": ("tool_choice", "parallel_tools", "user"),  # the one tool chosen is sent alone
    }
    for field in ("tool_choice", "parallel_tools", "max_tokens", "temperature", "effort", "user",
                  "stream"):  # fmt: skip
        if field not in lacking.get(name, ()):
            assert getattr(found, field) == getattr(request, field), field
    assert [(t.name, t.schema) for t in found.tools] == [("f", schema)]
    assert found.output is not None and found.output.schema == schema


def merged(messages: tuple[Message, ...]) -> list[Any]:
    """Turns as what is said in order: formats differ in how they cut them."""
    return [
        ("image", part.data) if isinstance(part, ImagePart)
        else (part.type, getattr(part, "text", None) or getattr(part, "id", None))
        for message in messages for part in message.parts
    ]  # fmt: skip


def test_caching_marks_reach_anthropic_and_come_back() -> None:
    message = Message("user", (TextPart("long", cache="1h"), TextPart("short", cache="5m")))
    lead = Message("system", (TextPart("rules", cache="5m"),))
    body = ANTHROPIC.encode_request(Request("m", (lead, message)), Quirks())
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert ANTHROPIC.decode_request(body).messages == (lead, message)
    assert "cache_control" not in json.dumps(
        CHAT.encode_request(Request("m", (message,)), Quirks())
    )


def test_reasoning_goes_back_to_whom_it_came_from_only() -> None:
    mine = ReasoningPart("t", signature="s", origin="anthropic")
    theirs = ReasoningPart("t", encrypted="e", item="rs_1", origin="responses")
    said = (user("x"), assistant(mine, theirs, "y"), user("z"))
    to_anthropic = ANTHROPIC.encode_request(Request("m", said), Quirks())
    blocks = to_anthropic["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    to_openai = RESPONSES.encode_request(Request("m", said), Quirks())
    kept = [item for item in to_openai["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in kept] == ["e"]
    assert "reasoning_content" not in json.dumps(CHAT.encode_request(Request("m", said), Quirks()))


def test_a_tools_error_is_told_in_every_format() -> None:
    said = (
        user("x"),
        assistant(ToolCallPart("c", "f", "{}")),
        tool_result("c", "boom", is_error=True),
    )
    for format in FORMATS.values():
        assert "boom" in json.dumps(format.encode_request(Request("m", said), Quirks()))
    block = ANTHROPIC.encode_request(Request("m", said), Quirks())["messages"][-1]["content"][0]
    assert block["is_error"] is True


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("chat", {"model": "m"}), ("chat", {"model": "m", "messages": "x"}),
        ("chat", {"messages": [{"role": "user", "content": "x"}]}),
        ("chat", {"model": "m", "messages": [{"role": "wizard", "content": "x"}]}),
        ("chat", {"model": "m", "messages": [{"role": "user", "content": [{"type": "audio"}]}]}),
        ("chat", {"model": "m", "messages": [{"role": "user", "content": "x"}],
                  "max_tokens": "many"}),
        ("chat", {"model": "m", "messages": [{"role": "user", "content": "x"}],
                  "tools": [{"type": "custom"}]}),
        ("responses", {"model": "m"}), ("responses", {"model": "m", "input": [{"type": "magic"}]}),
        ("responses", {"model": "m", "input": "x", "previous_response_id": "r"}),
        ("responses", {"model": "m", "input": "x", "tools": [{"type": "web_search"}]}),
        ("anthropic", {"model": "m", "messages": []}),
        ("anthropic", {"model": "m", "messages": [{"role": "user", "content": [{"type": "pdf"}]}]}),
        ("anthropic", {"model": "m", "messages": [{"role": "user", "content": "x"}],
                       "tools": [{"type": "bash_20250124", "name": "bash"}]}),
    ],
)  # fmt: skip
def test_what_cant_be_translated_is_refused_by_path(name: Origin, body: Any) -> None:
    with pytest.raises(WireError):
        FORMATS[name].decode_request(body)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(
                        ["choices", "message", "delta", "type", "content", "index", "usage",
                         "response", "item", "output", "finish_reason", "tool_calls", "error"]),
                        inner, max_size=4), max_leaves=12))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_no_json_makes_a_decoder_raise_anything_unexpected(value: Any) -> None:
    from holdfast.errors import ProviderError
    from holdfast.gateway.formats.json_fields import fields

    for format in FORMATS.values():
        try:
            format.decode_reply(fields(value))
        except WireError:
            pass
        reader = StreamReader("p", format, 10**6)
        try:
            list(reader.feed(b"data: " + json.dumps(value).encode() + b"\n\n"))
            reader.close()
        except ProviderError:
            pass
        format.decode_failure(value)


@given(st.binary(max_size=300), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_any_bytes_parse_the_same_in_any_pieces(data: bytes, step: int) -> None:
    def parse(size: int) -> list[bytes]:
        parser = SseParser(10**6)
        found = [e for at in range(0, len(data), size) for e in parser.feed(data[at : at + size])]
        return [*found, *parser.close()]

    assert parse(step) == parse(len(data) or 1)


def test_an_oversized_event_is_refused_while_it_comes() -> None:
    parser = SseParser(100)
    with pytest.raises(WireError):
        for _ in range(20):
            list(parser.feed(b"data: xxxxxxxxx"))
    parser = SseParser(100)
    with pytest.raises(WireError):
        list(parser.feed(b"data: xxxxxxxxx\n" * 20))


# --- quirks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "takes"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", True), ("anthropic", "claude-opus-4.6", True),
        ("anthropic", "claude-3-5-haiku-latest", True), ("anthropic", "claude-sonnet-4", True),
        ("anthropic", "claude-haiku-4-5", True), ("anthropic", "claude-haiku-4-6", False),
        ("anthropic", "claude-opus-4-7", False), ("anthropic", "claude-sonnet-5", False),
        ("anthropic", "claude-opus-5-20260801", False), ("anthropic", "claude-fable-5", False),
        ("openai", "gpt-4o", True), ("openai", "gpt-5-mini", False), ("openai", "o3", False),
        ("openai", "gpt-5-chat-latest", True), ("groq", "llama-3.3-70b", True),
    ],
)  # fmt: skip
def test_sampling_is_sent_to_models_that_take_it(provider: str, model: str, takes: bool) -> None:
    known = KNOWN[provider]
    request = Request(model, (user("x"),), temperature=0.5)
    body = FORMATS[known.formats[0]].encode_request(request, known.quirks)
    assert ("temperature" in body) == takes


def test_effort_is_said_as_each_provider_wants_it() -> None:
    def body(format: Format, model: str) -> Any:
        return format.encode_request(Request(model, (user("x"),), effort="high"), Quirks())

    assert body(CHAT, "m")["reasoning_effort"] == "high"
    assert body(RESPONSES, "m")["reasoning"]["effort"] == "high"
    assert body(ANTHROPIC, "claude-opus-4.7")["thinking"] == {"type": "adaptive"}
    assert body(ANTHROPIC, "claude-opus-4.7")["output_config"] == {"effort": "high"}
    old = body(ANTHROPIC, "claude-sonnet-4-5-20250929")
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 8192 - 1024}


def test_a_provider_without_schemas_is_told_in_words() -> None:
    output = OutputSchema({"type": "object"})
    body = CHAT.encode_request(Request("m", (user("x"),), output=output), KNOWN["deepseek"].quirks)
    assert body["response_format"] == {"type": "json_object"}
    assert "JSON schema" in body["messages"][0]["content"]


def test_a_refusal_keeps_its_words() -> None:
    completion = Completion((RefusalPart("no"),), "refusal", "m", Usage(1, 1), "x")
    for format in (CHAT, RESPONSES):
        found = format.decode_reply(format.encode_reply(completion, None))
        assert (found.parts, found.finish) == ((RefusalPart("no"),), "refusal")
    found = ANTHROPIC.decode_reply(ANTHROPIC.encode_reply(completion, None))
    assert (found.parts, found.finish) == ((TextPart("no"),), "refusal")


def test_broken_image_urls_are_refused() -> None:
    from holdfast.gateway.formats.openai import image_from_url

    with pytest.raises(WireError):
        image_from_url("data:image/png,notbase64")
