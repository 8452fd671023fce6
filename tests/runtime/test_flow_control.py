"""Flow control: throttle, rate limit, debounce, batches, singleton, priority; in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Batch,
    Concurrency,
    Debounce,
    RateLimit,
    RunCancelled,
    Singleton,
    Throttle,
    TooManyRequests,
    UsageError,
    get_run,
    list_runs,
    send_event,
    sleep,
    start,
    step,
    workflow,
)
from holdfast.testing import Harness

began: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    began.clear()


@step
async def note(what: str) -> None:
    began.append(what)


def most_in_any(moments: list[float], seconds: float) -> int:
    """The most that lie in one stretch of so many seconds."""
    ordered = sorted(moments)
    return max(
        sum(1 for each in ordered[first:] if each < at + seconds)
        for first, at in enumerate(ordered)
    )


async def starts_of(name: str) -> list[float]:
    runs = (await list_runs(workflow=name, limit=1000)).runs
    assert all(run.started_at is not None for run in runs)
    return [run.started_at for run in runs if run.started_at is not None]


# --- throttle ---


@workflow(name="throttled_sync", throttle=Throttle(5, per="1m", key="tenant", per_key=2))
async def throttled_sync(tenant: str, number: int = 0) -> None:
    await note(f"{tenant}{number}")


async def test_no_more_begin_in_any_minute_than_was_said(harness: Harness) -> None:
    handles = [await start(throttled_sync, tenant, n) for tenant in "abc" for n in range(7)]
    await harness.until_blocked()
    assert len(began) == 5
    record = await handles[6].record()
    assert record.status == "queued"
    place = await harness.engine.store.queue_place(handles[6].id)
    assert place is not None
    assert place.text(harness.engine.clock.now()) == "queued behind 4 of key a, next slot in 60 s"
    for handle in handles:
        await handle.result()
    moments = await starts_of("throttled_sync")
    assert len(moments) == 21
    assert most_in_any(moments, 60.0) == 5
    for tenant in "abc":
        own = [
            run.started_at or 0.0
            for run, handle in zip([await each.record() for each in handles], handles, strict=True)
            if handles.index(handle) // 7 == "abc".index(tenant)
        ]
        assert most_in_any(own, 60.0) == 2
    # By turns, so that the third key has not waited for the first.
    assert {what[0] for what in began[:5]} == {"a", "b", "c"}


async def test_workers_that_were_away_do_not_catch_up_faster(harness: Harness) -> None:
    for n in range(12):
        now = harness.engine.clock.now() - 600 + 50 * n  # one by one, while there was no worker
        new = throttled_sync.new_run(b'{"tenant":"a"}', "a", now)
        await harness.engine.store.create(new, None)
    await harness.until_blocked()
    assert len(began) == 2


async def test_children_and_retries_keep_the_pace_too(harness: Harness) -> None:
    @workflow(name="parent_of_throttled")
    async def parent() -> int:
        for n in range(3):
            await throttled_sync("x", n)
        return 3

    handle = await start(parent)
    assert await handle.result() == 3
    assert most_in_any(await starts_of("throttled_sync"), 60.0) == 2


# --- rate limit ---


@workflow(
    name="limited_report", on="report", rate_limit=RateLimit(per="1h", key="asked.by", per_key=2)
)
async def limited_report(asked: dict[str, Any]) -> str:
    return asked["by"]


async def test_a_start_too_many_is_refused_and_an_event_too_many_starts_nothing(
    harness: Harness,
) -> None:
    for _ in range(2):
        await start(limited_report, {"by": "ann"})
    with pytest.raises(TooManyRequests, match="2 runs of limited_report") as refused:
        await start(limited_report, {"by": "ann"})
    assert refused.value.retry_after == pytest.approx(3600)
    await harness.until_blocked()  # events count once a worker listens for them
    for _ in range(3):
        await send_event("report", {"by": "bob"})
    await harness.until_blocked()
    assert len((await list_runs(workflow="limited_report")).runs) == 4
    await harness.skip("1h")
    await start(limited_report, {"by": "ann"})


# --- debounce ---


@workflow(name="index_document", debounce=Debounce("10s", key="document", at_most="25s"))
async def index_document(document: str, text: str) -> str:
    return text


async def test_the_last_start_counts_once_it_is_quiet(harness: Harness) -> None:
    first = await start(index_document, "a", "1")
    other = await start(index_document, "b", "other")
    await harness.skip("8s")
    again = await start(index_document, "a", "2")
    assert again.id == first.id
    await harness.skip("8s")
    assert (await first.record()).status == "pending"
    assert (await other.record()).status == "completed"
    assert await first.result() == "2"
    record = await first.record()
    assert (record.started_at or 0) - record.created_at == pytest.approx(18.0)
    assert (await start(index_document, "a", "3")).id != first.id


async def test_a_start_that_is_put_off_for_ever_begins_all_the_same(harness: Harness) -> None:
    handles = {(await start(index_document, "a", "0")).id}
    for n in range(1, 8):
        await harness.skip("5s")
        handles.add((await start(index_document, "a", str(n))).id)
    assert len(handles) == 2
    runs = sorted((await list_runs(workflow="index_document")).runs, key=lambda r: r.created_at)
    assert (runs[0].started_at or 0) - runs[0].created_at == pytest.approx(25.0)


# --- batches ---


class Click(BaseModel):
    user: str
    n: int


@workflow(name="count_clicks", on="click", batch=Batch(3, within="1m", key="user"))
async def count_clicks(clicks: list[Click]) -> list[int]:
    return [click.n for click in clicks]


async def test_events_go_into_one_run_until_there_are_enough_or_time_is_over(
    harness: Harness,
) -> None:
    await harness.until_blocked()
    for n in range(7):
        await send_event("click", {"user": "ann", "n": n})
        await send_event("click", {"user": "bob", "n": 10 * n})
    await harness.crash()
    await harness.until_blocked()
    runs = (await list_runs(workflow="count_clicks")).runs
    assert sorted(run.status for run in runs) == ["completed"] * 4 + ["pending"] * 2
    await harness.skip("1m")
    results = [await (await get_run(run.id)).result() for run in runs]
    assert sorted(results) == sorted([[0, 1, 2], [3, 4, 5], [6], [0, 10, 20], [30, 40, 50], [60]])


# --- singleton ---


@workflow(name="nightly_sync", singleton=True)
async def nightly_sync() -> None:
    await sleep("1h")


@workflow(name="build_branch", singleton=Singleton(key="branch", when_busy="replace"))
async def build_branch(branch: str, commit: str) -> str:
    try:
        await sleep("1h")
    finally:
        await note(f"cleaned {commit}")
    return commit


async def test_a_second_start_of_a_singleton_gets_the_run_that_is_under_way(
    harness: Harness,
) -> None:
    one = await start(nightly_sync)
    assert (await start(nightly_sync)).id == one.id
    await one.result()
    assert (await start(nightly_sync)).id != one.id


async def test_a_newer_run_takes_the_place_of_the_one_before(harness: Harness) -> None:
    old = await start(build_branch, "main", "c1")
    other = await start(build_branch, "next", "c0")
    await harness.until_blocked()
    new = await start(build_branch, "main", "c2")
    assert await new.result() == "c2"
    with pytest.raises(RunCancelled):
        await old.result()
    assert await other.result() == "c0"
    ended, begun = (await old.record()).finished_at, (await new.record()).started_at
    assert ended is not None
    assert begun is not None
    assert ended <= begun


# --- priority ---


@workflow(name="paid_first", concurrency=1, priority=lambda paid, n: "1h" if paid else 0)
async def paid_first(paid: bool, n: int) -> None:
    await note(f"{'paid' if paid else 'free'} {n}")
    await sleep("1s")


async def test_those_with_priority_begin_before_those_that_came_earlier(harness: Harness) -> None:
    handles = [await start(paid_first, paid=False, n=n) for n in range(3)]
    handles += [await start(paid_first, paid=True, n=n) for n in range(2)]
    handles.append(await start(paid_first.options(priority="2h"), paid=False, n=9))
    for handle in handles:
        await handle.result()
    assert began == [
        "free 0", "free 9", "paid 0", "paid 1", "free 1", "free 2",
    ]  # fmt: skip


async def test_who_waits_longer_than_a_priority_is_worth_comes_first(harness: Harness) -> None:
    @workflow(name="urgent_by_minutes", concurrency=1)
    async def urgent(n: int) -> None:
        await note(str(n))
        await sleep("1h")

    handles = [await start(urgent, n) for n in range(2)]
    await harness.skip("10m")
    handles.append(await start(urgent.options(priority="5m"), 7))
    for handle in handles:
        await handle.result()
    assert began == ["0", "1", "7"]


# --- what makes no sense is refused ---


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"throttle": Throttle(1), "concurrency": Concurrency(key="a", per_key=1)}, None),
        (
            {
                "throttle": Throttle(key="b", per_key=1),
                "concurrency": Concurrency(key="a", per_key=1),
            },
            "two keys",
        ),
        ({"singleton": True, "concurrency": 2}, "both singleton and concurrency"),
        ({"singleton": True, "debounce": Debounce("1s")}, "only one of"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], why: str | None) -> None:
    async def flow_of_two(a: str, b: str) -> None: ...

    if why is None:
        workflow(name="flow_of_two", **options)(flow_of_two)
        return
    with pytest.raises(UsageError, match=why):
        workflow(name="flow_of_two", **options)(flow_of_two)


def test_rates_that_are_none_are_refused() -> None:
    for made in (
        lambda: Throttle(),
        lambda: Throttle(0),
        lambda: Throttle(1, per=0),
        lambda: Throttle(1, key="a"),
        lambda: RateLimit(per_key=1),
        lambda: Batch(0, within="1s"),
    ):
        with pytest.raises(UsageError):
            made()
    with pytest.raises(UsageError, match="can't be given a key"):
        index_document.options(key="mine")
