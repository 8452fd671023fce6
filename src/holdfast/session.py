"""What this process has open, and who is asking.

A leaf, because the layers meet here without importing one another: the runtime says which stores
and engines are open and which step is executing; the gateway and the sandbox record what they do
against that step, in the same store, and let go of it when the run or the store ends.

- Stores and engines: opened one inside the other; what was opened last is used. A store goes by
  its name here; what kind of store a name means, and what can be asked of it, `store.opener`
  knows.
- The caller: a step, a workflow body, a request to the server, or nobody known. It is one context
  variable, so a step never sees half of another's.
- Holders: what must end with a run, such as its sandboxes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast import config

A = TypeVar("A")
R = TypeVar("R")

DEFAULT_STORE = ".holdfast/holdfast.db"

# --- who is asking ---


class CurrentStep(NamedTuple):
    """The step attempt that is executing."""

    run_id: str
    workflow: str
    step: str
    key: str
    """The step's place in its run, such as `0.2/3`: stable across attempts and replays."""
    attempt: int
    idempotency_key: str
    """The same for every attempt of this step, and for no other step."""


class Interceptor(Protocol):
    """Runs `function(argument)` as a durable step called `name`.

    The runtime installs one for a workflow body; the gateway hands it a model call instead of
    making it:

        reply = await interceptor("generate_text anthropic/claude-…", call_model, request)

    The step runs outside the workflow's event loop, with `current_step()` set. Its result is
    journaled by the function's annotations (`async def call_model(request: Request) -> Reply`),
    and comes from the journal on replay.
    """

    async def __call__(
        self, name: str, function: Callable[[A], Awaitable[R]], argument: A
    ) -> R: ...


class Caller(NamedTuple):
    """On whose behalf the code at hand runs. Outside of any, every field is None."""

    engine: Any = None
    """The `runtime.Engine` that carries out the step or serves the request."""
    step: CurrentStep | None = None
    context: Any = None
    """The step's `runtime.StepContext`."""
    interceptor: Interceptor | None = None
    """Makes model calls durable; set in a workflow body, never in a step."""


NOBODY = Caller()
_caller: ContextVar[Caller] = ContextVar("holdfast_caller", default=NOBODY)


def caller() -> Caller:
    """On whose behalf the code at hand runs."""
    return _caller.get()


def set_caller(caller: Caller) -> Token[Caller]:
    """Name the caller for this context; the runtime and the server do this, nobody else."""
    return _caller.set(caller)


def current_step() -> CurrentStep | None:
    """The executing step attempt, or None outside of one."""
    return _caller.get().step


def interceptor() -> Interceptor | None:
    """What makes the calls of the code at hand durable; None where they are made directly."""
    return _caller.get().interceptor


# --- what is open ---

_engines: list[Any] = []
_stores: list[str] = []
_on_close: dict[str, list[Callable[[], Awaitable[None]]]] = {}


def add_engine(engine: Any) -> None:
    """An engine was opened: it is used by whoever is not a caller of another."""
    _engines.append(engine)


def remove_engine(engine: Any) -> None:
    """An engine is about to close."""
    _engines.remove(engine)


def opened_engine() -> Any:
    """The engine of the caller, else the one opened last, else None."""
    return _caller.get().engine or (_engines[-1] if _engines else None)


def default_store(environ: Mapping[str, str] = os.environ) -> str:
    """The store unless somebody says otherwise: HOLDFAST_STORE or `holdfast.toml` name it."""
    return config.store(environ) or DEFAULT_STORE


def opened_store() -> str | None:
    """The store opened last in this process, if one is open."""
    return _stores[-1] if _stores else None


def current_store() -> str:
    """The store this process works on: the one opened last, else the default one."""
    return opened_store() or default_store()


def add_store(name: str) -> None:
    """A store was opened; the runtime says so, nobody else."""
    _stores.append(name)


def on_store_close(name: str, close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` called when this store, open now, is closed."""
    _on_close.setdefault(name, []).append(close)


async def remove_store(name: str) -> None:
    """A store was closed: whoever wrote to it as well lets go of it."""
    _stores.remove(name)
    if name not in _stores:
        for close in _on_close.pop(name, []):
            await close()


# --- what is held for runs ---


class Holder(Protocol):
    """Holds things that belong to runs, in this process."""

    def runs(self) -> Collection[str]:
        """The runs it holds something for."""
        ...

    async def end_run(self, run_id: str) -> None:
        """Let go of what it holds for this run."""
        ...


_holders: list[Holder] = []


def add_holder(holder: Holder) -> None:
    """Have `holder` told of the ends of runs from now on."""
    _holders.append(holder)


def remove_holder(holder: Holder) -> None:
    """Tell it no more; one that was never added is fine."""
    if holder in _holders:
        _holders.remove(holder)


def held_runs() -> set[str]:
    """The runs that anything is held for in this process.

    The engine asks now and then: a run may have ended in another process.
    """
    return {run_id for holder in _holders for run_id in holder.runs()}


async def end_run(run_id: str) -> None:
    """A run's end is on disk: whoever holds something for it lets go. The engine says so."""
    holders = [holder for holder in _holders if run_id in holder.runs()]
    await asyncio.gather(*(holder.end_run(run_id) for holder in holders))
