"""Schedules: written by who has seen the latest, with the runs of their firings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from holdfast.records.schedules import Firing, FiringOutcome, Schedule
from holdfast.store.base import RunFilter, Store
from holdfast.store.parts import StoreParts
from holdfast.store.schedules import KEPT_FIRINGS, ScheduleChange
from holdfast.testing.store_conformance.records import (
    Conformance,
    claimed,
    found,
    new_run,
    opened,
    status_of,
)


def schedule(name: str = "daily", **fields: Any) -> Schedule:
    values: dict[str, Any] = {
        "workflow": "flow",
        "timing": "0 7 * * * Europe/Berlin",
        "input": b'{"n":1}',
        "created_at": 1.0,
        "attributes": {"team": "ä"},
        "next_at": 10.0,
        "due_at": 12.5,
        **fields,
    }
    return Schedule(name, **values)


def firing(at: float, outcome: FiringOutcome, **fields: Any) -> Firing:
    return Firing("daily", at, outcome, at + 1, **fields)


async def written(store: Store, change: ScheduleChange) -> Schedule:
    after = await store.write_schedule(change)
    assert after is not None
    return after


class ScheduleConformance(Conformance):
    """Each change follows from the one before, and a firing's run comes with it."""

    async def test_a_schedule_is_read_as_it_was_written(self, store: Store) -> None:
        full = schedule(
            overlap="queue", catch_up="all", jitter=2.5, in_code=True, paused_at=3.0, last_at=4.0
        )
        assert await written(store, ScheduleChange(full, None)) == full
        assert await store.schedules() == await store.schedules(["daily", "none"]) == [full]
        later = replace(full, timing="every 60", paused_at=None, last_run="run_1")
        after = await written(store, ScheduleChange(later, 1))
        assert after == replace(later, revision=2)
        assert await store.schedules(["none"]) == []

    async def test_who_has_not_seen_the_latest_writes_nothing(self, store: Store) -> None:
        first = await written(store, ScheduleChange(schedule(), None))
        moved = replace(first, next_at=20.0)
        runs = [new_run("run_1"), new_run("run_2")]
        assert await store.write_schedule(ScheduleChange(schedule(), None)) is None
        await written(store, ScheduleChange(moved, 1, [firing(10.0, "started")], runs[:1]))
        late = ScheduleChange(moved, 1, [firing(10.5, "started")], runs[1:])
        assert await store.write_schedule(late) is None
        assert await store.get("run_2") is None
        assert [each.at for each in await store.firings("daily", 10)] == [10.0]
        assert await store.write_schedule(ScheduleChange(schedule("gone"), 1)) is None

    async def test_of_many_who_make_a_firing_one_does(self, parts: StoreParts) -> None:
        async with opened(parts, "wkr_1") as one, opened(parts, "wkr_2") as two:
            first = await written(one, ScheduleChange(schedule(), None))
            tries = [
                store.write_schedule(
                    ScheduleChange(
                        replace(first, last_run=f"run_{n}"),
                        1,
                        [firing(10.0, "started", run_id=f"run_{n}")],
                        [new_run(f"run_{n}", key="10")],
                    )
                )
                for n, store in enumerate([one, two] * 4)
            ]
            done = [each for each in await asyncio.gather(*tries) if each is not None]
            [run] = (await one.list_runs(RunFilter(), 10, None)).runs
            assert [each.last_run for each in done] == [run.id]
            assert [each.run_id for each in await two.firings("daily", 10)] == [run.id]

    async def test_a_moment_whose_key_is_used_is_the_run_that_has_it(self, store: Store) -> None:
        await store.create(new_run("run_old", key="k"), None)
        assert await store.used_keys("flow", ["k", "l"]) == {"k"}
        assert await store.used_keys("other", ["k"]) == set()
        await written(store, ScheduleChange(schedule(), None))
        change = ScheduleChange(
            schedule(last_run="run_new"),
            1,
            [firing(10.0, "started", run_id="run_new")],
            [new_run("run_new", key="k")],
        )
        assert (await written(store, change)).last_run == "run_old"
        assert await store.get("run_new") is None
        assert (await store.firings("daily", 1))[0].run_id == "run_old"

    async def test_the_run_before_is_cancelled_with_the_change(self, store: Store) -> None:
        claim = await claimed(store)
        await store.release("run_1", claim.fence, 9e11)
        await written(store, ScheduleChange(schedule(), None, cancel="run_1", at=5.0))
        assert await status_of(store) in ("cancelled", "waiting")
        if await status_of(store) == "waiting":  # its `finally` blocks come first
            assert (await found(store)).due_at == 5.0
        await written(store, ScheduleChange(schedule(), 1, cancel="run_none", at=6.0))

    async def test_due_ones_are_found_by_workflow_and_moment(self, store: Store) -> None:
        for name, due_at, workflow in (("a", 5.0, "flow"), ("b", 3.0, "flow"), ("c", 1.0, "x")):
            made = schedule(name, due_at=due_at, workflow=workflow)
            await written(store, ScheduleChange(made, None))
        await written(store, ScheduleChange(schedule("d", due_at=None), None))
        assert [s.name for s in await store.due_schedules(["flow"], 5.0, 10)] == ["b", "a"]
        assert [s.name for s in await store.due_schedules(["flow", "x"], 5.0, 2)] == ["c", "b"]
        assert await store.due_schedules(["flow"], 2.0, 10) == []
        assert await store.next_schedule(["flow"]) == 3.0
        assert await store.next_schedule(["none"]) is None

    async def test_queued_firings_are_counted_and_found_oldest_first(self, store: Store) -> None:
        await written(store, ScheduleChange(schedule(due_at=None), None))
        queued = [firing(float(at), "queued") for at in (3, 1, 2)]
        after = await written(store, ScheduleChange(schedule(due_at=None), 1, queued))
        assert after.queued == 3
        assert [s.name for s in await store.due_schedules(["flow"], 0.0, 10)] == ["daily"]
        assert [f.at for f in await store.firings("daily", 2, "queued")] == [1.0, 2.0]
        begun = [firing(1.0, "started", run_id="run_1")]
        after = await written(store, ScheduleChange(after, 2, begun, [new_run()]))
        assert after.queued == 2
        paused = await written(store, ScheduleChange(replace(after, paused_at=1.0), 3))
        assert await store.due_schedules(["flow"], 0.0, 10) == []
        assert paused.queued == 2

    async def test_of_past_firings_the_latest_are_kept(self, store: Store) -> None:
        await written(store, ScheduleChange(schedule(), None))
        many = [firing(float(at), "skipped", error="ß") for at in range(KEPT_FIRINGS + 50)]
        missed = firing(9e5, "missed", until=9e6)
        await written(store, ScheduleChange(schedule(), 1, [firing(0.5, "queued"), *many, missed]))
        kept = await store.firings("daily", 10_000)
        assert KEPT_FIRINGS <= len(kept) <= KEPT_FIRINGS + 2
        assert (kept[0], kept[1], kept[-1].outcome) == (missed, many[-1], "queued")

    async def test_a_deleted_schedule_leaves_nothing_but_its_runs(self, store: Store) -> None:
        change = ScheduleChange(schedule(), None, [firing(1.0, "started")], [new_run()])
        await written(store, change)
        assert await store.delete_schedule("daily")
        assert not await store.delete_schedule("daily")
        assert (await store.schedules(), await store.firings("daily", 9)) == ([], [])
        assert await store.get("run_1") is not None
