"""Steering many runs at once: all that fit a filter, some at a time.

Runs are found a page at a time and each is steered by a small transaction of its own, so that
workers are not kept from writing. What a run's state does not allow is counted, not raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from holdfast.errors import NotFound, Refused, UsageError
from holdfast.records import ENDED, Status
from holdfast.runtime.engine import Engine
from holdfast.store.base import RunFilter

BulkAction = Literal["cancel", "terminate", "retry", "delete"]
AT_ONCE = 100
SHOWN = 100

LIVE: tuple[Status, ...] = tuple(each for each in get_args(Status) if each not in ENDED)
MAY_BE: dict[BulkAction, tuple[Status, ...]] = {
    "cancel": LIVE,
    "terminate": LIVE,
    "retry": ("failed",),
    "delete": tuple(sorted(ENDED)),
}
"""The states in which an action makes sense: others are not looked at, unless they are named."""


@dataclass
class BulkResult:
    """What became of steering many runs."""

    matched: int = 0
    done: int = 0
    refused: int = 0
    """Those whose state did not allow it: they may have ended meanwhile."""
    runs: list[str] = field(default_factory=list[str])
    """The first hundred that matched."""


async def steer_all(
    engine: Engine, action: BulkAction, where: RunFilter, *, dry_run: bool = False
) -> BulkResult:
    """Cancel, terminate, retry or delete every run that fits; `dry_run`: only count them."""
    if action not in MAY_BE:
        raise UsageError(f"{action!r} can't be done to many", hint=f"one of {', '.join(MAY_BE)}")
    wanted = tuple(each for each in where.status or MAY_BE[action] if each in MAY_BE[action])
    result = BulkResult()
    if not wanted:
        return result
    fitting = replace(where, status=wanted)
    cursor: str | None = None
    while True:
        # By id, downwards: a run whose state has changed is passed, none is met twice.
        page = await engine.store.list_runs(fitting, AT_ONCE, cursor)
        for run in page.runs:
            result.matched += 1
            if len(result.runs) < SHOWN:
                result.runs.append(run.id)
            if not dry_run:
                try:
                    await _steer(engine, action, run.id)
                    result.done += 1
                except Refused:
                    result.refused += 1
                except NotFound:
                    result.done += 1  # deleted with the run that had called it
        if page.cursor is None:
            return result
        cursor = page.cursor


async def _steer(engine: Engine, action: BulkAction, run_id: str) -> None:
    now = engine.clock.now()
    if action == "retry":
        await engine.store.retry(run_id, now)
    elif action == "delete":
        await engine.store.delete(run_id, now)
    else:
        await engine.store.request(run_id, action, now)
