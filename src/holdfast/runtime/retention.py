"""Retention: which ended runs are kept, and letting go of the others, some at a time.

    [retention]
    keep = "90d"                 # ended runs, from their end on
    keep_failed = "365d"         # those that failed or were cancelled, if it is another time
    most = 10000                 # of each workflow, however young

    [retention.workflows.import_data]
    keep = "7d"

A worker looks once an hour. Nothing that has not ended is touched, nor what is held, nor the child
of a run that has not ended. Without a rule everything is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast import config
from holdfast.errors import HoldfastError, NotFound, Refused, UsageError
from holdfast.records import Status
from holdfast.runtime.engine import Engine
from holdfast.store.retention import Kept
from holdfast.typed_settings import DURATION

log = logging.getLogger("holdfast")

EVERY_SECONDS = 3600.0
AT_ONCE = 100
WELL: tuple[Status, ...] = ("completed", "continued")
BADLY: tuple[Status, ...] = ("failed", "cancelled")


@dataclass(frozen=True)
class RetentionRule:
    """What is kept of a workflow."""

    keep: float | None = field(default=None, metadata=DURATION)
    """How long runs are kept once they have ended; None: for ever."""
    keep_failed: float | None = field(default=None, metadata=DURATION)
    """How long those are that failed or were cancelled; None: as the others."""
    most: int | None = None
    """How many are kept that have ended, the newest; None: all."""

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise UsageError(f"most = {self.most}", hint="0 or more")


@dataclass(frozen=True)
class RetentionSettings(RetentionRule):
    """The `[retention]` section."""

    workflows: dict[str, RetentionRule] = field(default_factory=dict[str, RetentionRule])
    """Rules of single workflows, in place of the general one."""

    @property
    def has_rules(self) -> bool:
        rules: Iterable[RetentionRule] = (self, *self.workflows.values())
        return any(
            limit is not None
            for each in rules
            for limit in (each.keep, each.keep_failed, each.most)
        )


@dataclass
class Pruned:
    """What a look has come to."""

    deleted: dict[str, int] = field(default_factory=dict[str, int])
    """By workflow; the children of deleted runs are not counted."""
    refused: int = 0
    """Those that somebody still needs: they go next time."""

    @property
    def total(self) -> int:
        return sum(self.deleted.values())


def kept_by(rule: RetentionRule, workflow: str, now: float) -> list[Kept]:
    """A rule, as the store is asked for what it does not cover."""
    failed = rule.keep if rule.keep_failed is None else rule.keep_failed
    return [
        Kept(workflow, status, None if keep is None else now - keep, rule.most)
        for status, keep in ((WELL, rule.keep), (BADLY, failed))
        if keep is not None or rule.most is not None
    ]


async def prune(engine: Engine, settings: RetentionSettings, *, dry_run: bool = False) -> Pruned:
    """Delete the runs whose time is over; `dry_run`: only count them."""
    done = Pruned()
    for workflow in await engine.store.workflows():
        rule = settings.workflows.get(workflow, settings)
        for kept in kept_by(rule, workflow, engine.clock.now()):
            after = ""
            while found := await engine.store.over(kept, AT_ONCE, after):
                after = found[-1]
                for run_id in found:
                    if dry_run or await _deleted(engine, run_id):
                        done.deleted[workflow] = done.deleted.get(workflow, 0) + 1
                    else:
                        done.refused += 1
    return done


async def _deleted(engine: Engine, run_id: str) -> bool:
    try:
        await engine.store.delete(run_id, engine.clock.now())
    except NotFound:
        return True  # with the run that had called it, or by another worker
    except Refused:
        return False
    return True


async def keep_pruning(engine: Engine) -> None:
    """Look once an hour, until cancelled."""
    settings = config.section("retention", RetentionSettings)
    while settings.has_rules:
        try:
            done = await prune(engine, settings)
            if done.total:
                log.info("%d runs were deleted, as [retention] says", done.total)
        except HoldfastError as error:
            log.error("runs whose time is over can't be deleted now: %s", error)
        await asyncio.sleep(EVERY_SECONDS)
