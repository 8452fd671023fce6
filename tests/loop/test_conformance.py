"""The loop over the stock wire formats: a real HTTP server on loopback, whole and streamed.

What counts is what the next request says on the wire, in each format's own terms.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.support import fake_providers, make_gateway
from holdfast import Agent, start, tool, workflow
from holdfast.gateway import Say, use_gateway
from holdfast.gateway.messages import ReasoningPart, TextPart, ToolCallPart
from holdfast.gateway.reply import Completion, Usage
from holdfast.loop import AgentResult
from holdfast.testing import Harness
from holdfast.testing.providers import FakeProvider

FORMATS = ("chat", "responses", "anthropic")


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool(idempotent=True)
async def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


class Wire:
    """An agent's conversation with a provider that speaks one format."""

    def __init__(self, format: str, how: str) -> None:
        self.format, self.how = format, how
        self.fake: FakeProvider | None = None

    async def run(self, script: list[Any], **settings: Any) -> AgentResult[Any]:
        with FakeProvider(script) as fake:
            self.fake = fake
            gateway = make_gateway(providers=fake_providers(fake.url, self.format))
            use_gateway(gateway)
            try:
                agent = Agent(f"fake-{self.format}/model", "Be brief.", [add, fail], **settings)
                return await self._how(agent)
            finally:
                use_gateway(None)
                await gateway.close()

    async def _how(self, agent: Agent[Any]) -> AgentResult[Any]:
        if self.how == "whole":
            return await agent.run("go")
        if self.how == "streamed":
            return await agent.stream("go").result()
        found: list[AgentResult[Any]] = []

        @workflow
        async def flow() -> None:
            result = await agent.run("go", stream="output" if "stream" in self.how else None)
            found.append(result)

        async with Harness(replay_always=True):
            await (await start(flow)).result()
        return found[-1]

    def body(self, number: int) -> dict[str, Any]:
        assert self.fake is not None
        return self.fake.received[number].body

    def calls(self, number: int) -> list[tuple[str, Any]]:
        """The tool calls that a request tells of: name and arguments."""
        body = self.body(number)
        if self.format == "chat":
            said = [call for m in body["messages"] for call in m.get("tool_calls") or ()]
            return [(c["function"]["name"], c["function"]["arguments"]) for c in said]
        if self.format == "responses":
            items = [item for item in body["input"] if item.get("type") == "function_call"]
            return [(item["name"], item["arguments"]) for item in items]
        return [(b["name"], json.dumps(b["input"])) for b in self._blocks(number, "tool_use")]

    def results(self, number: int) -> list[tuple[str, str, bool]]:
        """The tool results of a request: the call's id, the text, whether it is an error."""
        body = self.body(number)
        if self.format == "chat":
            said = [m for m in body["messages"] if m["role"] == "tool"]
            return [
                (m["tool_call_id"], m["content"], m["content"].startswith("Error: ")) for m in said
            ]
        if self.format == "responses":
            items = [i for i in body["input"] if i.get("type") == "function_call_output"]
            return [(i["call_id"], i["output"], i["output"].startswith("Error: ")) for i in items]
        blocks = self._blocks(number, "tool_result")
        return [(b["tool_use_id"], b["content"], b.get("is_error", False)) for b in blocks]

    def _blocks(self, number: int, type: str) -> list[dict[str, Any]]:
        messages = self.body(number)["messages"]
        blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"]]
        return [block for block in blocks if block["type"] == type]

    def tools(self, number: int) -> list[dict[str, Any]]:
        """The tools of a request: name, description, schema."""
        shown = self.body(number)["tools"]
        return [each["function"] if self.format == "chat" else each for each in shown]


@pytest.fixture(params=["whole", "streamed", "durable", "durable stream"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=FORMATS)
async def wire(request: pytest.FixtureRequest, how: str) -> AsyncIterator[Wire]:
    yield Wire(request.param, how)


async def test_parallel_calls_are_answered_each_by_its_id(wire: Wire):
    calls = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
    result = await wire.run([Say("Adding.", tools=calls), "3 and 7"])
    assert result.output == "3 and 7"
    assert [json.loads(given) for _, given in wire.calls(1)] == [given for _, given in calls]
    answers = wire.results(1)
    assert [text for _, text, _ in answers] == ["3", "7"]
    assert len({id for id, _, _ in answers}) == 2
    assert not any(error for _, _, error in answers)


async def test_tools_are_shown_in_the_formats_own_terms(wire: Wire):
    await wire.run(["ready"])
    shown = {each["name"]: each for each in wire.tools(0)}
    schema = shown["add"].get("parameters") or shown["add"]["input_schema"]
    assert schema["properties"]["b"] == {"type": "integer", "description": "The second."}
    assert shown["add"]["description"] == "Add two numbers."


async def test_arguments_that_come_in_fragments_are_put_together(wire: Wire):
    result = await wire.run([Say(tools=[("add", {"a": 100, "b": 23})], chunk=1), "123"])
    assert result.steps[0].tools[0].text == "123"
    assert json.loads(wire.calls(1)[0][1]) == {"a": 100, "b": 23}


async def test_errors_and_wrong_arguments_are_told(wire: Wire):
    calls = [("fail", {"why": "no luck"}), ("add", {"a": "x", "b": 1}), ("gone", {})]
    result = await wire.run([Say(tools=calls), "I see."])
    assert result.output == "I see."
    texts = [text for _, text, error in wire.results(1) if error]
    assert "no luck" in texts[0]
    assert "wrong arguments: a:" in texts[1]
    assert "there is no tool 'gone'" in texts[2]


async def test_arguments_that_are_no_json_are_told_and_the_conversation_goes_on(wire: Wire):
    if wire.format == "anthropic" and wire.how in ("whole", "durable"):
        pytest.skip("whole replies of this format carry arguments as data: they can't be broken")
    script = [Say(tools=[("add", '{"a": 1, "b"')]), Say(tools=[("add", {"a": 1, "b": 1})]), "2"]
    result = await wire.run(script)
    assert result.output == "2"
    (_, told, error), *_ = wire.results(1)
    assert error and "broken JSON" in told
    assert wire.results(2)[-1][1:] == ("2", False)


async def test_a_refusal_ends_it(wire: Wire):
    result = await wire.run([Say(refusal="I won't.", finish="refusal")])
    assert result.finish == "refusal"
    assert wire.fake is not None and wire.fake.hits == 1


async def test_a_cut_reply_ends_it_and_its_calls_are_not_made(wire: Wire):
    result = await wire.run([Say("As I was say", finish="length")])
    assert (result.finish, result.text) == ("length", "As I was say")
    half = Say("Adding.", tools=[("add", {"a": 1, "b": 1})], finish="length")
    result = await wire.run([half])
    assert result.finish == "length"
    assert all(run.status == "not_run" for run in result.steps[0].tools)


def thinking(format: str) -> Completion:
    """A reply that reasons and calls a tool, with what the format wants to see again."""
    reasoning: Callable[..., ReasoningPart] = ReasoningPart
    part = {
        "chat": reasoning("two numbers", origin="chat"),
        "responses": reasoning("two numbers", encrypted="enc-1", item="rs_1", origin="responses"),
        "anthropic": reasoning("two numbers", signature="sig-1", origin="anthropic"),
    }[format]
    parts = (part, TextPart("Adding."), ToolCallPart("call_1", "add", '{"a":1,"b":2}'))
    return Completion(parts, "tool_calls", "model", Usage(5, 5))


async def test_reasoning_is_kept_across_turns(wire: Wire):
    result = await wire.run([thinking(wire.format), "3"])
    assert result.steps[0].reply.reasoning == "two numbers"
    sent = json.dumps(wire.body(1))
    kept = {"chat": "two numbers", "responses": "enc-1", "anthropic": "sig-1"}[wire.format]
    assert kept in sent
    if wire.format == "anthropic":
        last = [m for m in wire.body(1)["messages"] if m["role"] == "assistant"][-1]
        assert [b["type"] for b in last["content"]] == ["thinking", "text", "tool_use"]


async def test_typed_answers_are_asked_for_and_repaired(wire: Wire):
    script = ["forty-two", '{"value": 42}']
    result = await wire.run(script, output=int)
    assert result.output == 42
    sent = json.dumps(wire.body(0))
    assert '"value"' in sent and "json_schema" in sent
    assert "not valid" in json.dumps(wire.body(1))
