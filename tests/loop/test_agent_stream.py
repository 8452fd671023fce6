"""An agent read while it works: here, and durably through a stream of its run."""

import asyncio
from typing import Any

import pytest

from holdfast import Agent, start, tool, workflow
from holdfast.gateway import Fail, Say, ScriptedModel
from holdfast.loop import (
    ReasoningPiece,
    StepFinished,
    TextPiece,
    ToolCalled,
    ToolFinished,
    stream_agent,
)
from holdfast.testing import Harness


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


SCRIPT = [
    Say("Let me add these.", reasoning="two numbers", tools=[("add", {"a": 2, "b": 3})], chunk=6),
    Say("It is five.", chunk=4),
]


async def test_text_comes_in_pieces_and_the_result_at_the_end():
    with ScriptedModel("adder", SCRIPT):
        async with Agent("scripted/adder", tools=[add]).stream("go") as stream:
            pieces = [piece async for piece in stream]
        result = await stream.result()
    assert len(pieces) > 4
    assert "".join(pieces) == "Let me add these.It is five."
    assert result.output == "It is five."


async def test_events_tell_everything_in_order():
    with ScriptedModel("adder", SCRIPT):
        stream = stream_agent("scripted/adder", "go", tools=[add])
        events = [event async for event in stream.events()]
    kinds = [type(event) for event in events]
    assert list(dict.fromkeys(kinds)) == [
        ReasoningPiece,
        TextPiece,
        ToolCalled,
        ToolFinished,
        StepFinished,
    ]
    called = next(event for event in events if isinstance(event, ToolCalled))
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert (called.call.name, finished.run.text) == ("add", "5")
    assert kinds.count(StepFinished) == 2


async def test_leaving_early_stops_the_agent():
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    with ScriptedModel("slow", [Say("wait", tools=[("hang", {})])]):
        async with Agent("scripted/slow", tools=[hang]).stream("go"):
            await began.wait()
    assert stopped.is_set()


async def test_what_fails_is_raised_after_what_came_before():
    with ScriptedModel("cut", [Fail("cut", text="half an answer", after=8)]):
        pieces: list[str] = []
        with pytest.raises(Exception, match="cut"):
            async for piece in Agent("scripted/cut").stream("go"):
                pieces.append(piece)
    assert "".join(pieces) == "half an "


async def test_in_a_workflow_the_pieces_are_in_a_stream_of_the_run(harness: Harness):
    with ScriptedModel("adder", SCRIPT) as model:

        @workflow
        async def flow() -> str:
            agent = Agent("scripted/adder", tools=[add])
            return (await agent.run("go", stream="output")).output

        run = await start(flow)
        chunks: list[Any] = [chunk async for chunk in run.stream()]
        assert await run.result() == "It is five."
    text = "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text")
    assert text == "Let me add these.It is five."
    assert [chunk for chunk in chunks if chunk["type"].startswith("tool")] == [
        {"type": "tool_call", "name": "add", "arguments": '{"a": 2, "b": 3}'},
        {"type": "tool_result", "name": "add", "status": "done"},
    ]
    assert len(model.requests) == 2


async def test_an_agent_can_be_streamed_within_a_body(harness: Harness):
    with ScriptedModel("adder", SCRIPT) as model:

        @workflow
        async def flow() -> str:
            stream = Agent("scripted/adder", tools=[add]).stream("go")
            return "|".join([piece async for piece in stream])

        run = await start(flow)
        assert await run.result() == "Let me add these.|It is five."
    assert len(model.requests) == 2
