"""Steering many runs by a filter, with counts and without effect when asked."""

import pytest

from holdfast import FatalError, UsageError, start, step, wait_for_event, workflow
from holdfast.runtime.bulk import steer_all
from holdfast.store.base import RunFilter
from holdfast.testing import Harness

broken = [True]


@step(retries=0)
async def fragile() -> str:
    if broken[0]:
        raise FatalError("broken")
    return "mended"


@workflow
async def bulk_failing() -> str:
    return await fragile()


@workflow
async def bulk_waiting() -> None:
    await wait_for_event("never", timeout="90d")


async def test_what_fits_is_cancelled_and_nothing_else(harness: Harness):
    chosen = [await start(bulk_waiting.options(attributes={"team": "a"})) for _ in range(3)]
    other = await start(bulk_waiting.options(attributes={"team": "b"}))
    await harness.until_blocked()
    where = RunFilter(workflow="bulk_waiting", attributes={"team": "a"})
    counted = await steer_all(harness.engine, "cancel", where, dry_run=True)
    assert (counted.matched, counted.done) == (3, 0)
    assert sorted(counted.runs) == sorted(run.id for run in chosen)
    done = await steer_all(harness.engine, "cancel", where)
    assert (done.matched, done.done, done.refused) == (3, 3, 0)
    await harness.until_blocked()
    assert [await run.status() for run in chosen] == ["cancelled"] * 3
    assert not (await other.record()).ended
    again = await steer_all(harness.engine, "cancel", where)
    assert (again.matched, again.done) == (0, 0)


async def test_failed_runs_are_retried_a_page_at_a_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.runtime.bulk.AT_ONCE", 2)
    broken[0] = True
    runs = [await start(bulk_failing) for _ in range(5)]
    await harness.until_blocked()
    broken[0] = False
    done = await steer_all(harness.engine, "retry", RunFilter(workflow="bulk_failing"))
    assert (done.matched, done.done) == (5, 5)
    assert [await run.result() for run in runs] == ["mended"] * 5


async def test_terminating_many_ends_them(harness: Harness):
    runs = [await start(bulk_waiting) for _ in range(2)]
    await harness.until_blocked()
    done = await steer_all(harness.engine, "terminate", RunFilter(workflow="bulk_waiting"))
    assert done.done == 2
    await harness.until_blocked()
    assert all([(await run.record()).ended for run in runs])


async def test_an_action_that_is_none_is_refused(harness: Harness):
    with pytest.raises(UsageError):
        await steer_all(harness.engine, "explode", RunFilter())  # type: ignore[arg-type]
