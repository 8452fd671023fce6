"""The loop itself: ask the model, carry out its tool calls, tell it, until it is done.

The same code in a workflow body and outside of one. In a body everything it does is a step of
its own (the gateway's calls by themselves, tools by `steps.py`) or deterministic, so that after a
crash it is replayed to where it was. Always bounded: in steps, in time and in spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import BudgetExceeded, OutcomeUnknown
from holdfast.gateway.calls import Options, tagged
from holdfast.gateway.messages import Message, user
from holdfast.gateway.reply import Reply
from holdfast.loop.agent_limits import WallTime, limit_spend
from holdfast.loop.agent_stream import (
    AgentEvent,
    Emit,
    StepFinished,
    ToolCalled,
    ToolFinished,
    as_chunk,
)
from holdfast.loop.model_calls import ModelCalls
from holdfast.loop.plan import StepPlan
from holdfast.loop.results import AgentResult, AgentStep, Finish, repair_words
from holdfast.loop.tool_calls import ToolBox, not_run
from holdfast.loop.tools import AgentTool, maybe_await, tools_of
from holdfast.runtime.context import patched, write_stream

if TYPE_CHECKING:
    from holdfast.loop.agent import Agent

_STOPS_REPEATS = "holdfast.agent.max_repeats"
ASKED_AGAIN = 3
"""How often a call is made anew whose process died in the middle of it."""
_GIVES_UP: dict[str, Finish] = {
    "length": "length", "refusal": "refusal", "content_filter": "content_filter"
}  # fmt: skip


class Cycle:
    """One run of an agent."""

    def __init__(
        self,
        agent: Agent[Any],
        messages: Sequence[Message],
        *,
        emit: Emit | None = None,
        stream: str | None = None,
    ) -> None:
        self._agent = agent
        self._emit, self._stream = emit, stream
        self._model_calls = ModelCalls(emit, stream)
        self._messages = list(messages)
        self._clock = WallTime(agent.max_time)
        self._steps: list[AgentStep] = []
        self._repairs = self._used = 0
        self._error = ""
        self._value: Any = None
        self._tools: list[AgentTool] = []

    async def run(self) -> AgentResult[Any]:
        """Go round until there is an answer, or a bound is reached."""
        try:
            async with self._clock:
                with tagged(*await limit_spend(self._agent.budget)):
                    finish = await self._go_round()
        except TimeoutError:
            if not self._clock.over:
                raise
            finish: Finish = "max_time"
        except BudgetExceeded as error:
            finish, self._error = "budget", error.message
        return self._result(finish)

    async def _go_round(self) -> Finish:
        agent = self._agent
        self._tools = await tools_of(agent.tools)
        box = ToolBox(self._tools, agent.max_result, self._clock)
        for number in range(1, agent.max_steps + 1):
            if self._used >= agent.token_limit:
                self._error = f"{self._used:,} tokens were used"
                return "budget"
            plan = await self._plan(number)
            reply = await self._ask(plan)
            self._used += reply.usage.total
            if reply.parts:
                self._messages.append(reply.message)
            finish = await self._take(number, reply, plan, box)
            if finish is not None:
                return finish
        return "max_steps"

    async def _plan(self, number: int) -> StepPlan:
        agent = self._agent
        plan = StepPlan(
            number=number,
            model=agent.model,
            system=agent.system,
            messages=tuple(self._messages),
            tools=tuple(self._tools),
            options=agent.options,
            steps=tuple(self._steps),
        )
        if agent.prepare_step is None:
            return plan
        return await maybe_await(agent.prepare_step(plan)) or plan

    async def _ask(self, plan: StepPlan) -> Reply:
        options: dict[str, Any] = dict(plan.options)
        if plan.tools:
            options["tools"] = [tool.wire for tool in plan.tools]
        else:
            options.pop("tool_choice", None)
        if self._agent.reading.schema is not None:
            options["output"] = self._agent.reading.schema
        asked = 0
        while True:
            asked += 1
            try:
                return await self._model_calls.ask(plan, cast(Options, options))
            except OutcomeUnknown:
                # The process died in mid-call. The call may have been paid for, and counts in
                # full against budgets; but a model call changes nothing, so it is made anew.
                if asked >= ASKED_AGAIN:
                    raise

    async def _take(self, number: int, reply: Reply, plan: StepPlan, box: ToolBox) -> Finish | None:
        """What follows from a reply; None: go on."""
        calls = reply.tool_calls
        given_up = _GIVES_UP.get(reply.finish)
        if given_up is not None:
            runs = not_run(calls, f"the reply ended by {reply.finish}")
            await self._finish_step(AgentStep(number, reply, runs))
            self._error = reply.refusal or ""
            return given_up
        if calls:
            for call in calls:
                await self._tell(ToolCalled(call))
            parallel = self._agent.parallel_tools
            runs = await box.call_all(calls, plan.tools, parallel=parallel)
            await self._finish_step(AgentStep(number, reply, runs))
            return self._stopped()
        await self._finish_step(AgentStep(number, reply))
        if reply.finish == "pause":
            return None
        return self._read(reply)

    async def _finish_step(self, step: AgentStep) -> None:
        self._steps.append(step)
        for run in step.tools:
            await self._tell(ToolFinished(run))
        await self._tell(StepFinished(step))
        if step.tools:
            self._messages.append(Message("tool", tuple(run.part for run in step.tools)))
        if self._agent.on_step_finish is not None:
            await maybe_await(self._agent.on_step_finish(step))

    async def _tell(self, event: AgentEvent) -> None:
        if self._emit is not None:
            await self._emit(event)
        chunk = as_chunk(event) if self._stream is not None else None
        if chunk is not None and self._stream is not None:
            await write_stream(chunk, stream=self._stream)

    def _stopped(self) -> Finish | None:
        """Whether the calls of the last step end it; None: go on."""
        if any(stop(self._steps) for stop in self._agent.stop_when):
            return "stop_when"
        repeats = self._agent.repeats
        # Runs recorded before there was this bound went on from here: they replay as they were.
        if repeats is not None and repeats(self._steps) and patched(_STOPS_REPEATS):
            names = ", ".join(sorted({run.name for run in self._steps[-1].tools}))
            self._error = f"{names}: the same calls had the same results over and over"
            return "repeating"
        return None

    def _read(self, reply: Reply) -> Finish | None:
        """The answer; or None, if it does not fit and the model may try again."""
        try:
            self._value = self._agent.reading.read(reply.text)
        except ValueError as error:
            self._error = str(error)[:600]
            if self._repairs >= self._agent.repairs:
                return "invalid"
            self._repairs += 1
            self._messages.append(user(repair_words(error)))
            return None
        self._error = ""
        return "stop"

    def _result(self, finish: Finish) -> AgentResult[Any]:
        said = [step.reply.text for step in self._steps if step.reply.text]
        return AgentResult(
            finish=finish,
            text=said[-1] if said else "",
            messages=tuple(self._messages),
            steps=tuple(self._steps),
            error=self._error,
            value=self._value,
        )
