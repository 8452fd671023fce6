"""The tool calls of one turn: carried out, and told to the model.

Whatever goes wrong is told to the model, which may do better: broken or wrong arguments, a tool
that does not exist, an error, a time limit. In a workflow body each call is a step of its own,
so that after a crash none that finished is done again; elsewhere it is just made.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, cast
from weakref import WeakKeyDictionary

from holdfast.errors import FatalError, NotInWorkflow, OutcomeUnknown, StepTimeout
from holdfast.gateway.messages import FilePart, ImagePart, TextPart, ToolCallPart
from holdfast.loop.agent_limits import WallTime
from holdfast.loop.approvals import Decision, approval, use, use_in_body
from holdfast.loop.arguments import WrongArguments, parsed
from holdfast.loop.results import ToolOutput, ToolRun, ToolStatus
from holdfast.loop.tools import AgentTool, maybe_await
from holdfast.runtime.app import current_engine
from holdfast.runtime.codec import MAX_BYTES, Signature, codec_for
from holdfast.runtime.context import execution
from holdfast.runtime.definitions import Step
from holdfast.runtime.retry import Backoff
from holdfast.runtime.threads import Threads
from holdfast.session import current_step

OUTCOME_UNKNOWN = (
    "Outcome unknown: the call was interrupted and may or may not have taken effect. "
    "It was not made again. Find out what happened before you do anything about it."
)

NOT_SHOWN = (
    "Done: it has taken effect, but its result can't be shown. "
    "Do not call it again to see the result."
)


def not_run(calls: Sequence[ToolCallPart], why: str) -> tuple[ToolRun, ...]:
    """Answers to calls that nobody made, so that the conversation can continue."""
    words = (TextPart(f"not run: {why}"),)
    return tuple(ToolRun(call.id, call.name, None, words, "not_run") for call in calls)


def denied(decision: Decision) -> str:
    """A refusal in words for the model."""
    if decision.how == "timeout":
        return "Denied: nobody approved it in time. It was not done."
    why = f" {decision.note}" if decision.note else ""
    return f"Denied by {decision.by}.{why} It was not done."


def worded(error: BaseException) -> str:
    """An error in words for the model."""
    message = str(getattr(error, "message", None) or error)
    if type(error).__name__ == "StepFailed":
        return message  # it carries the original's name
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def told(value: Any, limit: int) -> ToolOutput:
    """A tool's result as the model is told: text as it is, pictures and files, else JSON."""
    if isinstance(value, ToolOutput):
        return replace(value, content=tuple(_part(part, limit) for part in value.content))
    if isinstance(value, TextPart | ImagePart | FilePart):
        return ToolOutput((value,))
    if isinstance(value, list | tuple) and value:
        parts = cast("list[Any]", value)
        if all(isinstance(part, TextPart | ImagePart | FilePart) for part in parts):
            return ToolOutput(tuple(parts))
    return ToolOutput((TextPart(_cut(_text(value), limit)),))


def _part(part: TextPart | ImagePart | FilePart, limit: int) -> TextPart | ImagePart | FilePart:
    return replace(part, text=_cut(part.text, limit)) if isinstance(part, TextPart) else part


def _text(value: Any) -> str:
    from pydantic_core import to_json  # slow to import, and not needed by all

    if isinstance(value, str):
        return value
    return "done" if value is None else to_json(_ordered(value)).decode()


def _ordered(value: Any) -> Any:
    """Sets as sorted lists: their order differs from process to process."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=lambda each: json.dumps(each, default=str))
    if isinstance(value, dict):
        return {name: _ordered(part) for name, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in cast("list[Any]", value)]
    return value


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


_threads = Threads(32)
_steps: WeakKeyDictionary[AgentTool, Step[..., Any]] = WeakKeyDictionary()


_signatures: dict[CodeType, Signature] = {}


def kindred_step(
    function: Callable[..., Any], *, name: str, retries: int = 0, timeout: float | None = None
) -> Step[..., Any]:
    """A step of a function made anew for each use.

    Those of the same code share the knowledge of their arguments: it takes pydantic some
    milliseconds to gather.
    """
    step = Step[..., Any](function, name=name, retries=retries, timeout=timeout)
    code = function.__code__
    if code not in _signatures:
        _signatures[code] = step.signature
    step.signature = _signatures[code]
    return step


def step_of(tool: AgentTool) -> Step[..., Any]:
    """The step that a call of this tool is in a workflow body."""
    if tool not in _steps:
        _steps[tool] = _make_step(tool)
    return _steps[tool]


def _make_step(tool: AgentTool) -> Step[..., Any]:
    async def call_tool(
        call_id: str, arguments: dict[str, Any], max_result: int, approval: str | None
    ) -> ToolOutput:
        if approval is not None:
            await use(approval, tool.name, tool.name, arguments)
        if not tool.idempotent and not await _first_time():
            return ToolOutput((TextPart(OUTCOME_UNKNOWN),), is_error=True, status="unknown")
        limit = (await current_engine()).settings.max_payload
        return done(await perform(tool, arguments), max_result, limit)

    name = f"tool {tool.name}"
    return kindred_step(call_tool, name=name, retries=tool.retries, timeout=tool.timeout)


def done(value: Any, max_result: int, limit: int = MAX_BYTES) -> ToolOutput:
    """What a tool gave back, as the model is told and as it is stored.

    The tool has taken effect. A result that can't be shown or stored is no failure of it: said to
    have failed, the model would do it again.
    """
    try:
        output = told(value, max_result)
        codec_for(ToolOutput).encode(output, "$", limit)
    except Exception as error:  # noqa: BLE001 - it is the model's to know
        return ToolOutput((TextPart(f"{NOT_SHOWN} ({worded(error)[:300]})"),))
    return output


async def _first_time() -> bool:
    """Note on disk that the step begins; False if a worker that died has begun it before.

    `step.started` would not do: it is written without being waited for, so that a tool could
    have taken effect whose start nobody finds after a crash.
    """
    engine, here = await current_engine(), current_step()
    assert here is not None
    return await engine.store.begin_once(here.run_id, here.key)


async def plain_call(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """Call the tool here and now, within its time limit, again where it may be."""
    backoff = Backoff()
    attempt = 0
    while True:
        attempt += 1
        limit = asyncio.timeout(tool.timeout)
        try:
            async with limit:
                return await perform(tool, arguments)
        except FatalError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                error = StepTimeout(f"tool {tool.name} took longer than {tool.timeout:g} s")
            if attempt > tool.retries:
                raise error from None
            await asyncio.sleep(backoff.delay(attempt, random.random()))  # noqa: S311


async def perform(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """Call the tool's function: a coroutine function here, a plain one in a thread."""
    named = tool.arguments.named(arguments)
    if inspect.iscoroutinefunction(tool.function):
        return await tool.function(**named)
    value = await _threads.run(tool.function, (), named)
    return await value if inspect.isawaitable(value) else value


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
                tasks = [
                    group.create_task(self.call(call, names), name=call.name) for call in calls
                ]
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
