"""Carrying out the tool calls of one turn.

Whatever goes wrong is told to the model, which may do better: broken or wrong arguments, a tool
that does not exist, an error, a time limit. In a workflow body each call is a step of its own,
so that after a crash none that finished is done again; elsewhere it is just made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import NotInWorkflow, OutcomeUnknown, StepTimeout
from holdfast.gateway.messages import TextPart, ToolCallPart
from holdfast.loop.approvals import Decision, approval, use_in_body
from holdfast.loop.arguments import WrongArguments, parsed
from holdfast.loop.results import ToolOutput, ToolRun, ToolStatus
from holdfast.loop.tool_messages import OUTCOME_UNKNOWN, denied, worded
from holdfast.loop.tool_steps import done, plain_call, step_of
from holdfast.loop.tools import AgentTool, maybe_await
from holdfast.loop.wall_time import WallTime
from holdfast.runtime.context import execution


class ToolBox:
    """The tools of one run of an agent, and how many calls of each are under way."""

    def __init__(self, tools: Sequence[AgentTool], max_result: int, clock: WallTime) -> None:
        self.tools: Mapping[str, AgentTool] = {tool.name: tool for tool in tools}
        self._max_result, self._clock = max_result, clock
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def call_all(
        self, calls: Sequence[ToolCallPart], allowed: Sequence[AgentTool], *, parallel: bool
    ) -> tuple[ToolRun, ...]:
        """Carry out the calls of one turn; answers come in the order of the calls."""
        names = {tool.name: tool for tool in allowed}
        if not parallel or len(calls) == 1:
            return tuple([await self.call(call, names) for call in calls])
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.call(call, names)) for call in calls]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # as if they had been called in turn
        return tuple(task.result() for task in tasks)

    async def call(self, call: ToolCallPart, tools: Mapping[str, AgentTool]) -> ToolRun:
        """Carry out one call."""
        tool = tools.get(call.name)
        if tool is None:
            known = ", ".join(tools) or "none"
            return self._told(call, None, f"there is no tool {call.name!r} (there are: {known})")
        arguments: dict[str, Any] | None = None
        try:
            arguments = tool.arguments.check(parsed(call.arguments))
        except WrongArguments as error:
            return self._told(call, arguments, str(error), "wrong_arguments")
        try:
            allowed = await self._allowed(tool, arguments)
            if allowed is not None and not allowed:
                return self._told(call, arguments, denied(allowed), "denied")
            async with self._turn(tool):
                output = await self._output(tool, call, arguments, allowed)
        except StepTimeout as error:
            return self._timed_out(tool, call, arguments, error)
        except OutcomeUnknown as error:
            words = f"{error.message}. {OUTCOME_UNKNOWN}"
            return self._told(call, arguments, words, "unknown")
        except NotInWorkflow:
            raise  # nothing the model could do about it
        except Exception as error:  # noqa: BLE001 - it is the model's to handle
            return self._told(call, arguments, worded(error), "failed")
        return ToolRun(call.id, tool.name, arguments, output.content, output.status)

    async def _allowed(self, tool: AgentTool, arguments: dict[str, Any]) -> Decision | None:
        """What was decided about this call; None if nobody has to be asked."""
        if not tool.asks_first(arguments):
            return None
        assert tool.approval_timeout is not None
        with self._clock.stopped():
            return await approval(
                tool.name,
                tool=tool.name,
                arguments=arguments,
                timeout=tool.approval_timeout,
                to=tool.approvers,
                fallback=tool.approval_fallback,
                notify=tool.notify,
            )

    def _turn(self, tool: AgentTool) -> asyncio.Semaphore:
        if tool.name not in self._turns:
            self._turns[tool.name] = asyncio.Semaphore(tool.concurrency or 1_000_000)
        return self._turns[tool.name]

    async def _output(
        self,
        tool: AgentTool,
        call: ToolCallPart,
        arguments: dict[str, Any],
        allowed: Decision | None,
    ) -> ToolOutput:
        approved_by = None if allowed is None else allowed.approval_id
        if tool.place == "body":
            if approved_by is not None:
                await use_in_body(approved_by, tool.name, tool.name, arguments)
            named = tool.arguments.named(arguments)
            return done(await maybe_await(tool.function(**named)), self._max_result)
        if execution() is not None:
            return await step_of(tool)(call.id, arguments, self._max_result, approved_by)
        return done(await plain_call(tool, arguments), self._max_result)

    def _timed_out(
        self, tool: AgentTool, call: ToolCallPart, arguments: dict[str, Any], error: StepTimeout
    ) -> ToolRun:
        if tool.idempotent:
            return self._told(call, arguments, error.message, "failed")
        words = f"{error.message}. {OUTCOME_UNKNOWN}"
        return self._told(call, arguments, words, "unknown")

    @staticmethod
    def _told(
        call: ToolCallPart,
        arguments: dict[str, Any] | None,
        words: str,
        status: ToolStatus = "wrong_arguments",
    ) -> ToolRun:
        return ToolRun(call.id, call.name, arguments, (TextPart(words),), status)
