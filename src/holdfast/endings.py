"""Who holds something for a run, and lets go of it when the run has ended.

A leaf, because the runtime knows when a run ends and the sandbox holds what must end with it,
and neither imports the other. The engine tells after the end is on disk; it also asks now and
then which runs something is held for, since a run may end in another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol


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
    """The runs that anything is held for in this process."""
    return {run_id for holder in _holders for run_id in holder.runs()}


async def end_run(run_id: str) -> None:
    """A run has ended: whoever holds something for it lets go. The engine says so, nobody else."""
    holders = [holder for holder in _holders if run_id in holder.runs()]
    await asyncio.gather(*(holder.end_run(run_id) for holder in holders))
