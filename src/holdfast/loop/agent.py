"""`Agent`: a model, its instructions, its tools, and its bounds.

    agent = Agent("anthropic/claude-sonnet-4.6", "You answer for a shop.", [look_up, refund])
    result = await agent.run("Where is order A-1001?")
    print(result.output)

Plain outside a workflow; in a workflow body each model call and each tool call is a durable step.
An agent holds no state: one may have any number of runs under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Unpack

from typing_extensions import TypeVar

from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError
from holdfast.gateway.messages import Message, TextPart, user
from holdfast.loop.agent_limits import Amount, dollars
from holdfast.loop.agent_loop import Cycle
from holdfast.loop.agent_stream import AgentStream
from holdfast.loop.plan import (
    AgentSettings,
    ModelOptions,
    OnStepFinish,
    PrepareStep,
    StopWhen,
    repeating,
)
from holdfast.loop.results import AgentResult, Output, TextOutput, ToolOutput, TypedOutput
from holdfast.loop.tool_calls import told
from holdfast.loop.tools import AgentTool

T = TypeVar("T", default=str)

MAX_STEPS = 20
MAX_TIME = "1h"
TOKEN_LIMIT = 2_000_000
MAX_RESULT = 50_000
MAX_REPEATS = 5
"""Twice is an oversight, and whoever waits for something looks a few times; five times the same
answer to the same question in a row, nothing but the bill changes."""


class Agent(Generic[T]):
    """A model with instructions and tools, which goes on until it has an answer.

    `output`: the answer's type (text, if not given); an answer that does not fit is sent back up
    to `repairs` times. `max_steps`, `max_time`: bounds on model calls and on wall time (waiting
    for approvals does not count). `budget`: in US dollars; no call is made that could pass it.
    `token_limit`: no further call once so many tokens were used. `prepare_step`: sees the plan
    of each step, and may change its model, tools or messages. `on_step_finish`: is told of each.
    `stop_when`: conditions, looked at after each step that called tools. `max_repeats`: so many
    steps in a row with the same calls and the same results end it (None: any number may).
    `parallel_tools`:
    whether tools called in one turn are carried out at once. `max_result`: characters of a
    tool's result that the model is told at most.
    """

    def __init__(
        self,
        model: str,
        system: str | None = None,
        tools: Sequence[Any] = (),
        *,
        name: str = "agent",
        description: str = "",
        output: type[T] | None = None,
        repairs: int = 2,
        max_steps: int = MAX_STEPS,
        max_time: Duration = MAX_TIME,
        budget: Amount | None = None,
        token_limit: int = TOKEN_LIMIT,
        stop_when: StopWhen | Sequence[StopWhen] = (),
        max_repeats: int | None = MAX_REPEATS,
        prepare_step: PrepareStep | None = None,
        on_step_finish: OnStepFinish | None = None,
        parallel_tools: bool = True,
        max_result: int = MAX_RESULT,
        **options: Unpack[ModelOptions],
    ) -> None:
        if max_steps < 1:
            raise UsageError(f"{max_steps} steps are none", hint="max_steps is 1 or more")
        self.model = model
        self.system = system
        self.tools = tuple(tools)
        self.name = name
        self.description = description
        self.reading: Output = TextOutput() if output is None else TypedOutput(output)
        self.repairs = repairs
        self.max_steps = max_steps
        self.max_time = seconds(max_time)
        self.budget = dollars(budget)
        self.token_limit = token_limit
        self.stop_when: tuple[StopWhen, ...] = (
            (stop_when,) if callable(stop_when) else tuple(stop_when)
        )
        self.repeats: StopWhen | None = None if max_repeats is None else repeating(max_repeats)
        self.prepare_step = prepare_step
        self.on_step_finish = on_step_finish
        self.parallel_tools = parallel_tools
        self.max_result = max_result
        self.options = options

    async def run(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] = (),
        stream: str | None = None,
    ) -> AgentResult[T]:
        """Work until there is an answer or a bound is reached; `result.finish` says which.

        `messages`: a conversation to go on with, such as an earlier result's. `stream`: in a
        workflow, the run's stream that the answer's pieces and the tool calls are written to.
        """
        return await Cycle(self, conversation(prompt, messages), stream=stream).run()

    def stream(
        self, prompt: str | None = None, *, messages: Sequence[Message] = ()
    ) -> AgentStream[T]:
        """Work, and be read while doing so.

        async with agent.stream("Where is order A-1001?") as stream:
            async for piece in stream:
                print(piece, end="")
        print((await stream.result()).cost)
        """
        begun = conversation(prompt, messages)
        return AgentStream[T](lambda emit: Cycle(self, begun, emit=emit).run())

    def as_tool(self, name: str | None = None, description: str | None = None) -> AgentTool:
        """This agent as a tool of another: it is given a task, and answers.

        In a workflow its model calls and tool calls are steps of the same run.
        """

        async def delegate(task: str) -> ToolOutput:
            """Have a task done.

            Args:
                task: What to do, with everything that has to be known for it.
            """
            result = await self.run(task)
            if result.finish == "stop":
                return told("null" if result.value is None else result.value, MAX_RESULT)
            if result.finish == "stop_when":
                return told(result.value if result.value is not None else result.text, MAX_RESULT)
            words = f"stopped because of {result.finish}. {result.error} {result.text}"
            return ToolOutput((TextPart(words.strip()),), is_error=True, status="failed")

        about = description or self.description or f"Have the agent {self.name} do a task."
        return AgentTool(
            delegate,
            name=name or self.name,
            description=about,
            idempotent=True,  # what of it is not, is seen to by its own tools
            timeout=None,
            place="body",
        )

    def __repr__(self) -> str:
        return f"<agent {self.name} on {self.model}>"


def conversation(prompt: str | None, messages: Sequence[Message]) -> list[Message]:
    """The messages to begin with."""
    begun = [*messages, *([] if prompt is None else [user(prompt)])]
    if not begun:
        raise UsageError("there is nothing to answer", hint="give a prompt, or messages=")
    return begun


# --- for one use, without an `Agent` to keep ---


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
