"""The agent as a function: for one use, without an `Agent` to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from typing_extensions import TypeVar

from holdfast.gateway.messages import Message
from holdfast.loop.agent import Agent
from holdfast.loop.agent_stream import AgentStream
from holdfast.loop.plan import AgentSettings
from holdfast.loop.results import AgentResult

T = TypeVar("T", default=str)


async def run_agent(
    model: str,
    prompt: str | None = None,
    *,
    system: str | None = None,
    tools: Sequence[Any] = (),
    messages: Sequence[Message] = (),
    output: type[T] | None = None,
    **settings: Unpack[AgentSettings],
) -> AgentResult[T]:
    """Let a model work with tools until it has an answer; takes what `Agent` takes.

    result = await run_agent("openai/gpt-5.2", "Where is order A-1?", tools=[look_up])
    """
    agent = Agent[T](model, system, tools, output=output, **settings)
    return await agent.run(prompt, messages=messages)


def stream_agent(
    model: str,
    prompt: str | None = None,
    *,
    system: str | None = None,
    tools: Sequence[Any] = (),
    messages: Sequence[Message] = (),
    output: type[T] | None = None,
    **settings: Unpack[AgentSettings],
) -> AgentStream[T]:
    """The same, read while it works."""
    agent = Agent[T](model, system, tools, output=output, **settings)
    return agent.stream(prompt, messages=messages)
