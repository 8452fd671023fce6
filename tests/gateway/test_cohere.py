"""Cohere's format in its true words: whole, streamed and cut at every byte, embedding and ranking."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.errors import BadReply, ProviderError
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Quirks
from holdfast.gateway.messages import (
    ImagePart,
    Message,
    OutputSchema,
    ReasoningPart,
    Request,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    assistant,
    system,
    tool_result,
    user,
)
from holdfast.gateway.model_list import ask_providers
from holdfast.gateway.providers import KNOWN
from holdfast.gateway.reply import Assembler, Completion, Usage, as_events
from holdfast.gateway.upstream import StreamReader
from holdfast.testing.providers import FakeProvider, Raw

COHERE = FORMATS["cohere"]
CITED = {"start": 5, "end": 9, "text": "Gott", "type": "TEXT_CONTENT", "content_index": 1,
         "sources": [{"type": "document", "id": "doc_0", "document": {
             "id": "doc_0", "title": "Greetings", "snippet": "Grüß Gott", "url": "https://x.test"}}]}  # fmt: skip
BILLED = {"billed_units": {"input_tokens": 17, "output_tokens": 12},
          "tokens": {"input_tokens": 215, "output_tokens": 31}, "cached_tokens": 4}  # fmt: skip
WHOLE = {
    "id": "c1", "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "They greet."}, {"type": "text", "text": "Grüß Gott 🎉"}],
        "citations": [CITED]},
    "usage": BILLED,
}  # fmt: skip


def said(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def content(kind: str, index: int, **words: str) -> dict[str, Any]:
    return said(kind, index=index, delta={"message": {"content": words}})


TEXT = [
    said("message-start", id="c1", delta={"message": {
        "role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}}),
    content("content-start", 0, type="thinking", thinking=""),
    content("content-delta", 0, thinking="They "),
    content("content-delta", 0, thinking="greet."),
    said("content-end", index=0),
    content("content-start", 1, type="text", text=""),
    content("content-delta", 1, text="Grüß "),
    content("content-delta", 1, text="Gott 🎉"),
    said("citation-start", index=0, delta={"message": {"citations": CITED}}),
    said("citation-end", index=0),
    said("content-end", index=1),
    said("message-end", delta={"finish_reason": "COMPLETE", "usage": BILLED}),
]  # fmt: skip


def called(index: int, identity: str) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": ""}
    call = {"id": identity, "type": "function", "function": function}
    grown = [{"function": {"arguments": piece}} for piece in ('{"city":', ' "Rom"}')]
    return [
        said("tool-call-start", index=index, delta={"message": {"tool_calls": call}}),
        *(said("tool-call-delta", index=index, delta={"message": {"tool_calls": one}})
          for one in grown),
        said("tool-call-end", index=index),
    ]  # fmt: skip


TOOLS = [
    TEXT[0],
    said("tool-plan-delta", delta={"message": {"tool_plan": "I will "}}),
    said("tool-plan-delta", delta={"message": {"tool_plan": "look."}}),
    *called(0, "w_1"),
    *called(1, "w_2"),
    said("message-end", delta={"finish_reason": "TOOL_CALL", "usage": BILLED}),
]


def wire(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n".encode()
        for one in events
    )


def decoded(*pieces: bytes) -> Completion:
    reader, assembler = StreamReader("cohere", COHERE, 10**6), Assembler()
    for piece in pieces:
        for event in reader.feed(piece):
            assembler.add(event)
    for event in reader.close():
        assembler.add(event)
    return assembler.completion()


def test_a_whole_answer_and_its_stream_say_the_same() -> None:
    whole = COHERE.decode_reply(WHOLE)
    assert [type(part) for part in whole.parts] == [ReasoningPart, TextPart]
    assert (whole.text, whole.finish, whole.id) == ("Grüß Gott 🎉", "stop", "c1")
    assert whole.usage == Usage(17, 12, cached=4), "what is billed, not what its prompts take"
    text = whole.parts[1]
    assert isinstance(text, TextPart)
    [citation] = text.citations
    assert (citation.url, citation.title, citation.source) == (
        "https://x.test", "Greetings", "doc_0",
    )  # fmt: skip
    assert text.text[citation.start : citation.end] == "Gott"
    assert decoded(wire(TEXT)) == whole


@pytest.mark.parametrize("events", [TEXT, TOOLS], ids=["text", "tools"])
def test_a_stream_reads_the_same_cut_at_every_byte(events: list[dict[str, Any]]) -> None:
    data = wire(events)
    whole = decoded(data)
    for at in range(1, len(data)):
        assert decoded(data[:at], data[at:]) == whole
    end = data.rindex(b"event: message-end")
    for at in range(0, end, 7):
        with pytest.raises(BadReply):
            decoded(data[:at])


def test_the_plan_before_calls_is_text_and_goes_back_as_a_plan() -> None:
    found = decoded(wire(TOOLS))
    assert found.text == "I will look." and found.finish == "tool_calls"
    calls = [part for part in found.parts if isinstance(part, ToolCallPart)]
    assert [(call.id, call.input) for call in calls] == [
        ("w_1", {"city": "Rom"}), ("w_2", {"city": "Rom"}),
    ]  # fmt: skip
    back = (user("hi"), Message("assistant", found.parts), tool_result("w_1", "sunny"))
    body = COHERE.encode_request(Request("m", back), Quirks())
    assert body["messages"][1]["tool_plan"] == "I will look."
    assert [one["id"] for one in body["messages"][1]["tool_calls"]] == ["w_1", "w_2"]
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "w_1", "content": "sunny"}


def test_what_we_write_is_what_we_read() -> None:
    whole = COHERE.decode_reply(WHOLE)
    again = COHERE.decode_reply(json.loads(json.dumps(COHERE.encode_reply(whole, None))))
    assert again == whole
    encoder = COHERE.encoder(Request("m", ()))
    assert decoded(b"".join(encoder.encode(event) for event in as_events(whole))) == whole


def test_a_request_is_in_coheres_words() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    request = Request(
        "command-a-03-2025",
        (system("Be brief."), user("look", ImagePart.of(b"png", "image/png")),
         assistant(ReasoningPart("mine", origin="cohere"), ReasoningPart("theirs"), "so")),
        tools=(Tool("f", "does f", schema, strict=True), Tool("g")),
        tool_choice=ToolChoice("tool", "f"), max_tokens=9, temperature=0.5, top_p=1.0,
        stop=("END",), seed=7, output=OutputSchema(schema), thinking_tokens=500, stream=True,
    )  # fmt: skip
    assert COHERE.encode_request(request, Quirks()) == {
        "model": "command-a-03-2025",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "mine"}, {"type": "text", "text": "so"}]},
        ],
        "tools": [{"type": "function", "function": {
            "name": "f", "description": "does f", "parameters": schema}}],
        "strict_tools": True, "tool_choice": "REQUIRED", "max_tokens": 9, "temperature": 0.5,
        "p": 0.99, "stop_sequences": ["END"], "seed": 7, "stream": True,
        "response_format": {"type": "json_object", "json_schema": schema},
        "thinking": {"type": "enabled", "token_budget": 500},
    }  # fmt: skip


async def test_the_library_asks_coheres_own_format_and_reads_its_errors() -> None:
    sse = {"Content-Type": "text/event-stream"}
    cut = [*TEXT[:-1], said("message-end", delta={"finish_reason": "ERROR", "error": "overloaded"})]
    answers = [
        Raw([json.dumps(WHOLE).encode()]), Raw([wire(TEXT)], headers=sse),
        Raw([b'{"message": "invalid request: no such field"}'], status=422),
        Raw([wire(cut)], headers=sse),
    ]  # fmt: skip
    with FakeProvider(list(answers)) as fake:
        gateway = make_gateway(environ={"CO_API_KEY": "k", "CO_API_URL": fake.anthropic_url})
        model = "command-a-03-2025"
        reply = await generate_text(model, prompt="hi", gateway=gateway)
        assert (reply.text, reply.served_by) == ("Grüß Gott 🎉", f"cohere/{model}")
        assert [one.title for one in reply.citations] == ["Greetings"] and reply.cost
        assert (fake.received[0].path, fake.received[0].headers["Authorization"]) == (
            "/v2/chat", "Bearer k",
        )  # fmt: skip
        async with stream_text(model, prompt="hi", gateway=gateway) as stream:
            assert "".join([piece async for piece in stream]) == "Grüß Gott 🎉"
            assert (await stream.reply()).citations == reply.citations
        with pytest.raises(ProviderError, match="no such field"):
            await generate_text(model, prompt="hi", gateway=gateway)
        with pytest.raises(ProviderError, match="overloaded"):
            async with stream_text(model, prompt="hi", gateway=gateway) as stream:
                [piece async for piece in stream]
        await gateway.close()


def test_embedding_and_ranking_pass_through_on_record() -> None:
    with FakeProvider(["hi"]) as fake:
        place = {"base_url": fake.anthropic_url, "formats": ["cohere"]}
        prices = {"fake-cohere/*": {"input": 1, "output": 2}}
        with Service(lambda: make_gateway(providers={"fake-cohere": place}, prices=prices)) as made:
            head = {"Authorization": f"Bearer {made.secret}"}

            def ask(path: str, **body: Any) -> Any:
                url = f"{made.anthropic_url}{path}"
                answer = httpx2.post(
                    url, headers=head, json={"model": "fake-cohere/m", **body}, timeout=120
                )
                assert answer.status_code == 200, answer.text
                return answer.json()

            vectors = ask("/v2/embed", texts=["a", "bc"], input_type="search_document")
            assert len(vectors["embeddings"]["float"]) == 2
            ranked = ask("/v2/rerank", query="capital", documents=["zzz", "a capital"], top_n=1)
            assert [one["index"] for one in ranked["results"]] == [1]
            assert fake.received[0].body["model"] == "m"
            rerank, embed = made.calls(limit=2)
            assert (embed.start.format, rerank.start.format) == ("embeddings", "rerank")
            assert embed.end.input_tokens > 0 and embed.end.cost > 0


async def test_coheres_list_of_models_is_read() -> None:
    assert KNOWN["cohere"].formats == ("cohere", "chat")
    listed = {"models": [{"name": "command-a", "endpoints": ["chat"]},
                         {"name": "embed-v4.0", "endpoints": ["embed"]}]}  # fmt: skip
    gemini = {"models": [
        {"name": "models/gemini-x", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/vectors", "supportedGenerationMethods": ["embedContent"]}]}  # fmt: skip

    from holdfast.gateway.model_list import _offered  # pyright: ignore[reportPrivateUsage]

    assert _offered(listed) == {"command-a": True, "embed-v4.0": False}
    assert _offered(gemini) == {"gemini-x": True, "vectors": False}
    with FakeProvider(["hi"]) as fake:
        gateway = make_gateway(environ={"CO_API_KEY": "k", "CO_API_URL": fake.anthropic_url})
        assert (await ask_providers(gateway))["cohere"] == {"fake-model": True}
        await gateway.close()


def test_a_client_of_coheres_is_served_and_told_errors_in_its_words() -> None:
    with (
        FakeProvider(["hello", "hello"]) as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url, "chat"))) as made,
    ):
        head = {"Authorization": f"Bearer {made.secret}"}
        body = {"model": "fake-chat/m", "messages": [{"role": "user", "content": "hi"}]}
        url = f"{made.anthropic_url}/v2/chat"
        answer = httpx2.post(url, headers=head, json=body, timeout=120).json()
        assert answer["message"]["content"] == [{"type": "text", "text": "hello"}]
        assert answer["finish_reason"] == "COMPLETE"
        refused = httpx2.post(url, headers=head, json={**body, "k": 3}, timeout=120)
        assert refused.status_code == 400 and "k can't be translated" in refused.json()["message"]
