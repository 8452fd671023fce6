"""Which run and step the code at hand belongs to.

A leaf that the runtime sets and every other layer may read, so that a model call or a sandbox
made inside a step is recorded against it without the layers knowing one another.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


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


_current: ContextVar[CurrentStep | None] = ContextVar("holdfast_current_step", default=None)


def current_step() -> CurrentStep | None:
    """The executing step attempt, or None outside of one."""
    return _current.get()


def set_current_step(step: CurrentStep | None) -> None:
    """Name the executing step for this context; the runtime does this, nobody else."""
    _current.set(step)
