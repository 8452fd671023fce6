"""Tools: functions that a model may call.

    @tool(idempotent=True, timeout="10s")
    async def look_up(order: str) -> Order:
        \"\"\"An order by its number.

        Args:
            order: The number on the invoice, such as A-1001.
        \"\"\"

A tool is what it was when called directly. What the agent adds (checking arguments, time limits,
durability) is in `calls.py`; who may have to agree first is in `approvals.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar, cast, overload

from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError
from holdfast.gateway.messages import Tool
from holdfast.loop.approvals import Fallback, Notify
from holdfast.loop.arguments import Arguments, FunctionArguments, summary
from holdfast.runtime.definitions import Step, Workflow

F = TypeVar("F", bound=Callable[..., Any])

NeedsApproval = Callable[[Any], bool]

Place = Literal["step", "body"]
"""Where a tool is carried out in a workflow: as one step, or in the body, with steps of its own."""


class AgentTool:
    """A tool as agents use it; made by `tool`, or from a plain function, step or workflow.

    `idempotent`: whether doing it twice is the same as doing it once. One that is not, and was
    interrupted, is never done again by itself: the model is told that its outcome is unknown.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        timeout: Duration | None = "5m",
        concurrency: int | None = None,
        retries: int = 0,
        needs_approval: bool | NeedsApproval = False,
        approval_timeout: Duration | None = None,
        approval_fallback: Fallback = "deny",
        approvers: str = "",
        notify: Notify | None = None,
        arguments: Arguments | None = None,
        place: Place = "step",
    ) -> None:
        self.function = function
        self.name: str = name or getattr(function, "__name__", type(function).__name__)
        words = summary(inspect.getdoc(function) or "")
        self.description = description if description is not None else words
        self.idempotent = idempotent
        self.timeout = None if timeout is None else seconds(timeout)
        self.concurrency = concurrency
        self.retries = retries
        self.needs_approval = needs_approval
        self.approval_timeout = approval_timeout
        self.approval_fallback: Fallback = approval_fallback
        self.approvers = approvers
        self.notify = notify
        self.arguments = arguments or FunctionArguments(function)
        self.place: Place = place
        if (needs_approval is not False) != (approval_timeout is not None):
            raise UsageError(
                f"{self.name}: needs_approval and approval_timeout go together",
                hint='an approval without a time limit can\'t be written: approval_timeout="24h"',
            )
        if concurrency is not None and concurrency < 1:
            raise UsageError(f"{self.name}: a concurrency of {concurrency} would let nothing run")
        if retries and not idempotent:
            raise UsageError(
                f"{self.name} is not idempotent: it can't be retried",
                hint="say idempotent=True if doing it twice is the same as doing it once",
            )
        functools.update_wrapper(self, function)

    @functools.cached_property
    def wire(self) -> Tool:
        """What the model is shown."""
        return Tool(self.name, self.description, self.arguments.schema)

    def asks_first(self, arguments: dict[str, Any]) -> bool:
        """Whether a call with these arguments needs somebody's approval."""
        asks = self.needs_approval
        return asks(self.arguments.typed(arguments)) if callable(asks) else asks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


class ToolSource:
    """Something that has tools, known only when asked: an MCP server."""

    async def tools(self) -> list[AgentTool]:
        """Its tools now."""
        raise NotImplementedError


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: Duration | None = "5m",
    concurrency: int | None = None,
    retries: int = 0,
    needs_approval: bool | NeedsApproval = False,
    approval_timeout: Duration | None = None,
    approval_fallback: Fallback = "deny",
    approvers: str = "",
    notify: Notify | None = None,
) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a tool, and say how it may be used.

    `idempotent`: whether doing it twice is the same as doing it once (no, unless said).
    `timeout`: the longest it may take (5 minutes). `concurrency`: how many calls of it one agent
    may have under way. `retries`: how often to try again after an error, if idempotent.
    `needs_approval`: whether somebody has to agree first; may depend on the arguments, as in
    `lambda args: args.amount > 500`. Then `approval_timeout` is how long to wait for them
    (required), `approval_fallback` what counts if nobody decides, `approvers` who is asked,
    `notify` a function that tells them.

    >>> @tool(idempotent=True)
    ... async def look_up(order: str) -> Order: ...
    """

    def decorate(function: Callable[..., Any]) -> AgentTool:
        return AgentTool(function, **options)

    return decorate if function is None else decorate(function)


def as_tool(given: Any) -> AgentTool:
    """The tool for whatever was put into a list of tools."""
    if isinstance(given, AgentTool):
        return given
    if isinstance(given, Step | Workflow):
        # Their own policy counts: a step may be done again by its very nature.
        durable = cast(Any, given)
        return AgentTool(
            durable,
            name=durable.name,
            arguments=FunctionArguments(durable.function),
            idempotent=True,
            timeout=None,
            place="body",
        )
    made: Any = getattr(given, "as_tool", None)
    if made is not None:
        return made()
    if callable(given):
        return AgentTool(given)
    raise UsageError(f"{given!r} is no tool", hint="use a function, @tool, an agent or a source")


async def tools_of(given: Sequence[Any]) -> list[AgentTool]:
    """All tools, those of sources included; raises UsageError if two have one name."""
    found: list[AgentTool] = []
    for each in given:
        found += await each.tools() if isinstance(each, ToolSource) else [as_tool(each)]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are named {name!r}", hint="give one another name")
    return found


async def maybe_await(value: Any | Awaitable[Any]) -> Any:
    """The value, awaited if it has to be."""
    return await value if inspect.isawaitable(value) else value
