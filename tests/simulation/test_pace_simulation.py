"""Flow control in many worlds: workers die and freeze, disks fill, and the rate is never passed."""

from __future__ import annotations

import logging
import os
import random
from collections import defaultdict
from typing import Any

import pytest

from holdfast import Concurrency, Throttle, sleep, workflow
from holdfast.ids import derived_id
from holdfast.store.sqlite import admission, leases
from holdfast.store.sqlite.database import Transaction
from holdfast.testing.world import World

SEEDS = int(os.environ.get("HOLDFAST_SEEDS", "800")) // 160
UNFAIR = 32
"""A seed in which lanes that do not take turns show."""
PER = 10.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="holdfast")


@workflow(name="sim_paced", throttle=Throttle(4, per=PER, key="lane", per_key=2))
async def sim_paced(lane: str) -> None:
    await sleep(1)


@workflow(name="sim_fair", throttle=Throttle(2, per=PER, key="lane", per_key=2))
async def sim_fair(lane: str) -> None:
    return None


@workflow(
    name="sim_both",
    throttle=Throttle(3, per=PER, key="lane", per_key=3),
    concurrency=Concurrency(2, key="lane", per_key=1),
)
async def sim_both(lane: str) -> None:
    await sleep(7)


FLOWS = {flow.name: flow for flow in (sim_paced, sim_fair, sim_both)}
RATES = {"sim_paced": (4, 2), "sim_fair": (2, 2), "sim_both": (3, 3)}


def arrive(world: World, name: str, lane: str, number: int) -> str:
    run_id = derived_id("run", "run_0000000000", f"{name}{number}")
    now, tx = world.clock.time, Transaction(world.database.connection)
    new = FLOWS[name].new_run(f'{{"lane":"{lane}"}}'.encode(), lane, now, run_id)
    leases.create(tx, new, None, leases.Moment(now, now, ""))
    tx.flush()
    for process in world.processes:
        process.loop.call_soon(process.store.on_change, None)
    return run_id


def most_in_any(moments: list[float]) -> int:
    ordered = sorted(moments)
    return max(
        sum(1 for each in ordered[first:] if each < at + PER) for first, at in enumerate(ordered)
    )


def live(seed: int) -> list[Any]:
    """One world: the runs that were started, each with when it came, began and how it ended."""
    luck = random.Random(seed)
    world = World(seed, FLOWS)
    try:
        number = 0
        for _ in range(12):
            moment = world.clock.time + luck.choice((0.0, 1.0, 13.0, 40.0))
            world.run(lambda m=moment: world.clock.time >= m)
            name = luck.choice(list(FLOWS))
            for _ in range(luck.choice((1, 1, 6))):
                number += 1
                arrive(world, name, luck.choice("aaab"), number)
        connection = world.database.connection
        open_runs = "SELECT count(*) FROM runs WHERE finished_at IS NULL"
        ended = world.run(lambda: connection.execute(open_runs).fetchone()[0] == 0)
        assert ended, f"seed {seed}: some never began or never ended"
        return connection.execute(
            "SELECT workflow, lane, created_at, started_at, status FROM runs ORDER BY rowid"
        ).fetchall()
    finally:
        world.close()


def check(seed: int) -> None:
    by_flow: dict[str, list[Any]] = defaultdict(list)
    for row in live(seed):
        assert row[4] == "completed", f"seed {seed}"
        by_flow[row[0]].append(row)
    for name, rows in by_flow.items():
        most, most_of_lane = RATES[name]
        assert most_in_any([row[3] for row in rows]) <= most, f"seed {seed}: {name}"
        for lane in {row[1] for row in rows}:
            own = [row for row in rows if row[1] == lane]
            assert most_in_any([row[3] for row in own]) <= most_of_lane, f"seed {seed}: {lane}"
            begun = [row[3] for row in own]
            assert begun == sorted(begun), f"seed {seed}: not in the order they came"
            if name == "sim_fair":
                _check_turns(seed, lane, own, rows)


def _check_turns(seed: int, lane: str, own: list[Any], rows: list[Any]) -> None:
    """Nobody who is first in its lane is passed more than twice by another lane."""
    for place, (_, _, came, began, _) in enumerate(own):
        first_at = max(came, own[place - 1][3] if place else 0.0)
        for other in {row[1] for row in rows} - {lane}:
            passed = sum(1 for row in rows if row[1] == other and first_at < row[3] < began)
            assert passed <= 2, f"seed {seed}: {lane} was passed {passed} times by {other}"


def test_the_rate_is_kept_in_any_stretch_and_nobody_starves() -> None:
    for seed in (*range(SEEDS), UNFAIR):
        check(seed)


def test_a_store_that_counts_one_too_few_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: if this passed, the seeds above would prove nothing."""
    monkeypatch.setattr(admission, "NTH", admission.NTH.replace("OFFSET ?", "OFFSET ? + 1"))
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(50):
            check(seed)


def test_lanes_that_do_not_take_turns_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    by_age = admission.FIRST_OF_LANES.replace("SELECT max(t.id)", "SELECT 0 * max(t.id)")
    monkeypatch.setattr(admission, "FIRST_OF_LANES", by_age)
    with pytest.raises(AssertionError, match="was passed"):
        check(UNFAIR)
