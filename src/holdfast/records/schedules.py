"""Schedules and their firings, as they are stored and shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

Overlap = Literal["skip", "queue", "cancel", "allow"]
"""What a firing does while the run of the one before is under way: skip this one, start it once
that one has ended, cancel that one, or start beside it."""
CatchUp = Literal["skip", "one", "all"]
"""What becomes of firings that were missed because no worker was there: none of them is made up
for, the latest is, or all are, oldest first."""
OVERLAPS: Final = get_args(Overlap)
CATCH_UPS: Final = get_args(CatchUp)

FiringOutcome = Literal["started", "queued", "skipped", "missed"]


@dataclass(frozen=True)
class Schedule:
    """A schedule as it stands: what it starts, when, and what comes next."""

    name: str
    workflow: str
    timing: str
    """When, as text: `0 7 * * MON-FRI Europe/Berlin`, or `every 900`."""
    input: bytes
    """The workflow's arguments, as a JSON object."""
    created_at: float
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"
    jitter: float = 0.0
    """Seconds: each firing is put off by something between none of it and all of it."""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the runs are to be found by, besides the schedule's name."""
    in_code: bool = False
    """Whether it was declared with its workflow, and goes when it is no longer there."""
    paused_at: float | None = None
    next_at: float | None = None
    """The moment that the next firing is for; None: there is none, or it is paused."""
    due_at: float | None = None
    """When that firing is to be made: its moment, and its share of the jitter."""
    last_at: float | None = None
    """The moment that the last firing was for that was started."""
    last_run: str | None = None
    queued: int = 0
    """How many firings wait for the run before them to end."""
    revision: int = 1
    """Counts the changes: whoever writes says which one it has seen."""

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "input": json.loads(self.input), "paused": self.paused}


@dataclass(frozen=True)
class Firing:
    """One moment of a schedule, and what became of it."""

    schedule: str
    at: float
    """The moment that it is for."""
    outcome: FiringOutcome
    noted_at: float
    run_id: str | None = None
    until: float | None = None
    """For missed ones: up to which moment, so that a long absence is one record."""
    error: str | None = None
    """Why a run could not be started for it."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
