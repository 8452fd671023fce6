"""The engine's numbers, with what they were chosen for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.runtime.codec import MAX_BYTES


@dataclass(frozen=True)
class Settings:
    """How a worker behaves. The defaults suit one machine and any load it can bear."""

    lease_seconds: float = 15.0
    """A worker that has not renewed for so long may be replaced. (One that died on this
    machine is noticed within `sweep_seconds`.)"""
    sweep_seconds: float = 1.0
    """How often to look for dead workers and missed wake-ups."""
    idle_seconds: float = 5.0
    """A run that has only waited for so long leaves memory; it costs rows alone until it is due."""
    max_runs: int = 1000
    """Runs in memory at once."""
    claim_batch: int = 100
    crash_limit: int = 10
    """A run is stopped after so many workers in a row died with it and without progress."""
    max_payload: int = MAX_BYTES
    """The largest argument, result or event that is stored, in bytes."""
    step_timeout: float | None = None
    """The limit of each attempt of a step that has no `timeout` of its own, in seconds; a
    workflow's `step_timeout` goes before it."""
    body_seconds: float = 10.0
    """How long a body may compute in one go, in seconds of its own processor time, before it is
    interrupted and its run parked: bodies decide what to do, steps do it."""
    stall_seconds: float = 600.0
    """How long a step may hold the worker's event loop up before its lease is left to run out."""
    cleanup_seconds: float = 30.0
    """How long the `finally` blocks of a run may take whose deadline has passed."""
    queues: tuple[str, ...] = ()
    """The queues whose workflows this worker takes runs of; none: all of them."""
    versions: Literal["any", "own"] = "any"
    """Which runs it goes on with: of any version of a workflow that it knows, or only of the
    version that it has. With "own" old workers stay until the runs of their version have ended."""
    threads: int = 32
    """For steps that are plain functions."""
    cancel_seconds: float = 5.0
    """How long to wait at closing for interrupted steps to clean up."""
    unhurried_seconds: float = 0.01
    """How long an event that nothing waits for (a step began) may wait for company."""
    store_retry_seconds: float = 0.5
    replay_always: bool = False
    """Throw the body away and replay it after every event: slow, and the strictest test."""
