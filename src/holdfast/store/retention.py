"""The store's contract about what is kept: holds, runs whose time is over, and space given back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from holdfast.records import Status


@dataclass(frozen=True)
class Hold:
    """A run that nobody may delete until the hold is released."""

    run_id: str
    reason: str
    by: str
    at: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Kept(NamedTuple):
    """Which ended runs of a workflow are kept; all others are over."""

    workflow: str
    status: tuple[Status, ...]
    finished_after: float | None = None
    """Those that ended since; None: however long ago."""
    newest: int | None = None
    """So many of those that have ended, in whatever way; None: however many."""


class RetentionStore(Protocol):
    """What every store does about keeping and letting go."""

    async def hold(self, hold: Hold) -> None:
        """Keep a run and the runs that it has called; raises NotFound if it is not there."""
        ...

    async def release_hold(self, run_id: str) -> bool:
        """Let a run be deleted again; False if it was not held."""
        ...

    async def holds(self) -> list[Hold]:
        """What is held, the latest first."""
        ...

    async def over(self, kept: Kept, limit: int, after: str = "") -> list[str]:
        """The runs that are not kept, by id, behind one: none that is held, and none whose parent
        has not ended."""
        ...

    async def workflows(self) -> list[str]:
        """The workflows that there are runs of."""
        ...

    async def vacuum(self) -> int:
        """Give back the space of what was deleted; how many bytes that is."""
        ...
