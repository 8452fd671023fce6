"""A tool as a step of a workflow, and as a plain call."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.errors import FatalError, StepTimeout
from holdfast.gateway.messages import TextPart
from holdfast.loop.approvals import use
from holdfast.loop.results import ToolOutput
from holdfast.loop.tool_messages import NOT_SHOWN, OUTCOME_UNKNOWN, told, worded
from holdfast.loop.tools import AgentTool
from holdfast.runtime.app import current_engine
from holdfast.runtime.codec import MAX_BYTES, Signature, codec_for
from holdfast.runtime.definitions import Step
from holdfast.runtime.retry import Backoff
from holdfast.runtime.threads import Threads
from holdfast.session import current_step

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
