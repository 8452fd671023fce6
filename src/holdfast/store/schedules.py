"""The store's contract about schedules.

Whoever changes a schedule says which revision it has seen; if that is no longer the latest, nothing
is written. The runs that a firing starts are created in the same transaction. So a firing is made
once, however many processes see it due and wherever they die.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.records.schedules import Firing, FiringOutcome, Schedule

if TYPE_CHECKING:
    from holdfast.store.base import NewRun

KEPT_FIRINGS = 200
"""Of each schedule, besides those that are queued: what a page shows."""


@dataclass(frozen=True)
class ScheduleChange:
    """A schedule as it is to be, with what its firings do."""

    schedule: Schedule
    """Its `revision` and `queued` are the store's to say."""
    seen: int | None
    """The revision that this follows from; None: there is none of its name yet."""
    firings: Sequence[Firing] = ()
    """What is on record about their moments is replaced."""
    runs: Sequence[NewRun] = ()
    """One whose key a run has already is that run: where the schedule and its firings name the
    one, they get to name the other."""
    cancel: str | None = None
    """The run to cancel first, if it has not ended."""
    at: float = 0.0


class ScheduleStore(Protocol):
    """What every store does with schedules."""

    async def write_schedule(self, change: ScheduleChange) -> Schedule | None:
        """The schedule as written; None if it has changed, or gone, or come, since it was seen."""
        ...

    async def delete_schedule(self, name: str) -> bool:
        """Remove it with its firings; its runs go on. False if there was none."""
        ...

    async def schedules(self, names: Sequence[str] | None = None) -> list[Schedule]:
        """All of them, or those of the names, by name."""
        ...

    async def due_schedules(
        self, workflows: Sequence[str], before: float, limit: int
    ) -> list[Schedule]:
        """Those of the workflows that are due by a moment, or have firings queued and are not
        paused; the longest due first."""
        ...

    async def next_schedule(self, workflows: Sequence[str]) -> float | None:
        """When the next firing of one of the workflows is due."""
        ...

    async def used_keys(self, workflow: str, keys: Sequence[str]) -> set[str]:
        """Those of the keys that a run of the workflow has."""
        ...

    async def firings(
        self, name: str, limit: int, outcome: FiringOutcome | None = None
    ) -> list[Firing]:
        """The latest moments of a schedule, newest first; `queued` ones oldest first."""
        ...
