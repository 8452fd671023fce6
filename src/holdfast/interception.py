"""The seam by which a workflow body's model calls become durable steps.

A leaf, because the gateway asks and the runtime answers, and neither imports the other. The
runtime installs an interceptor in the context of a workflow body; the gateway hands it the call
instead of making it:

    reply = await interceptor("generate_text anthropic/claude-…", call_model, request)

The interceptor runs `function(argument)` as a step of that name: outside the workflow's event
loop, with `current_step()` set, its result journaled by the function's annotations
(`async def call_model(request: Request) -> Reply`), and given back from the journal on replay.
Outside a workflow body, and inside a step, there is no interceptor and the call is made directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from typing import Any, Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Interceptor(Protocol):
    """Runs `function(argument)` as a durable step called `name`."""

    async def __call__(
        self, name: str, function: Callable[[A], Awaitable[R]], argument: A
    ) -> R: ...


_interceptor: ContextVar[Interceptor | None] = ContextVar("holdfast_interceptor", default=None)


def interceptor() -> Interceptor | None:
    """What makes the calls of the code at hand durable; None where they are made directly."""
    return _interceptor.get()


def set_interceptor(value: Interceptor | None) -> Token[Any]:
    """Install an interceptor in this context; the runtime does this, nobody else."""
    return _interceptor.set(value)
