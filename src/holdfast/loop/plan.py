"""What an agent is told to do: its bounds, and the plan of its next step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.gateway.messages import Effort, Message, ToolChoice
from holdfast.loop.agent_limits import Amount
from holdfast.loop.results import AgentStep
from holdfast.loop.tools import AgentTool


class ModelOptions(TypedDict, total=False):
    """What each model call of an agent may be told; see `generate_text`."""

    tool_choice: str | ToolChoice
    max_tokens: int
    temperature: float
    top_p: float
    stop: Sequence[str]
    seed: int
    effort: Effort
    thinking_tokens: int
    user: str
    extra: dict[str, dict[str, Any]]
    tags: Sequence[str]


class AgentSettings(ModelOptions, total=False):
    """What an agent may be told; see `Agent`."""

    name: str
    description: str
    repairs: int
    max_steps: int
    max_time: Duration
    budget: Amount | None
    token_limit: int
    stop_when: StopWhen | Sequence[StopWhen]
    max_repeats: int | None
    prepare_step: PrepareStep | None
    on_step_finish: OnStepFinish | None
    parallel_tools: bool
    max_result: int


@dataclass(frozen=True)
class StepPlan:
    """The next step, before it is made: `prepare_step` may return a changed one."""

    number: int
    model: str
    system: str | None
    messages: tuple[Message, ...]
    """What is sent; the conversation itself is not changed by changing it."""
    tools: tuple[AgentTool, ...]
    options: ModelOptions
    steps: tuple[AgentStep, ...]
    """What was done so far."""


PrepareStep = Callable[[StepPlan], StepPlan | Awaitable[StepPlan | None] | None]
OnStepFinish = Callable[[AgentStep], Awaitable[None] | None]
StopWhen = Callable[[Sequence[AgentStep]], bool]


def has_called(tool: str) -> StopWhen:
    """Stop once this tool was called and did not fail: `stop_when=has_called("submit")`."""

    def stop(steps: Sequence[AgentStep]) -> bool:
        return any(run.name == tool and not run.is_error for run in steps[-1].tools)

    return stop


def repeating(times: int) -> StopWhen:
    """Stop once so many steps in a row made the same calls and had the same results.

    Agents do by themselves, after more of them (`max_repeats`): `stop_when=repeating(3)`.
    """
    if times < 2:
        raise UsageError(f"{times} is no repetition", hint="2 or more")

    def stop(steps: Sequence[AgentStep]) -> bool:
        last = [_calls(step) for step in steps[-times:]]
        return len(last) == times and bool(last[0]) and all(each == last[0] for each in last)

    return stop


def _calls(step: AgentStep) -> list[tuple[Any, ...]]:
    """What was called and what came of it, in whatever order: without the ids of the calls."""
    asked = {call.id: call.arguments for call in step.reply.tool_calls}
    runs = [
        (run.name, run.arguments or asked.get(run.call_id), run.status, run.content)
        for run in step.tools
    ]
    return sorted(runs, key=repr)
