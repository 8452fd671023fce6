"""Schedules: when they fire, what they start, and what becomes of what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast import (
    ScheduleHandle,
    ScheduleSpec,
    create_schedule,
    cron,
    every,
    get_run,
    get_schedule,
    list_runs,
    list_schedules,
    run_context,
    send_event,
    wait_for_event,
    workflow,
)
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.runtime.cron import Cron, latest, moments, parse_timing
from holdfast.runtime.definitions import register
from holdfast.testing import Harness

BERLIN = ZoneInfo("Europe/Berlin")


@workflow(name="tick")
async def tick(where: str = "here") -> str:
    scheduled = run_context().scheduled_at
    assert scheduled is not None
    return f"{where} {scheduled.isoformat()}"


@workflow(name="slow_tick")
async def slow_tick() -> None:
    await wait_for_event("done", timeout="1000d")


def moment(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


async def made(harness: Harness, when: ScheduleSpec, flow=tick) -> ScheduleHandle:
    handle = await create_schedule(flow, when)
    await harness.until_blocked()
    return handle


async def outcomes(handle: ScheduleHandle) -> list[str]:
    return [firing.outcome for firing in reversed(await handle.firings(200))]


async def scheduled_runs(flow: str = "tick") -> list[datetime]:
    """The moments that runs were started for, in order."""
    found, cursor = [], None
    while True:
        page = await list_runs(workflow=flow, limit=1000, cursor=cursor)
        found += [run.key.removeprefix(f"schedule:{flow}:") for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return sorted(datetime.fromisoformat(text) for text in found)


# --- when ---


def every_minute(day: str, zone: ZoneInfo) -> list[datetime]:
    """Every minute of a local day that there is, by the clock that nobody changes."""
    begin = moment(day, zone).astimezone(UTC)
    found = [begin + timedelta(minutes=n) for n in range(27 * 60)]
    return [
        at.astimezone(zone)
        for at in found
        if at.astimezone(zone).date() == begin.astimezone(zone).date()
    ]


def firings_on(fields: str, day: str, zone: ZoneInfo = BERLIN) -> list[str]:
    begin = moment(day, zone)
    end = moment((begin.date() + timedelta(days=1)).isoformat(), zone)
    found = moments(Cron(fields, zone.key), begin.timestamp() - 0.5, end.timestamp() - 0.5)
    return [datetime.fromtimestamp(at, zone).strftime("%H:%M%z") for at in found]


def test_a_fixed_time_fires_once_on_the_days_that_clocks_change() -> None:
    assert firings_on("30 2 * * *", "2026-03-28") == ["02:30+0100"]
    assert firings_on("30 2 * * *", "2026-03-29") == ["03:00+0200"]  # right after the gap
    assert firings_on("30 2 * * *", "2026-10-25") == ["02:30+0200"]  # the first of the two
    assert firings_on("0 7 * * *", "2026-03-29") == ["07:00+0200"]
    assert firings_on("30 2 * * *", "2026-03-08", ZoneInfo("America/New_York")) == ["03:00-0400"]
    assert firings_on("45 1 * * *", "2026-10-04", ZoneInfo("Australia/Lord_Howe")) == ["01:45+1030"]
    assert firings_on("15 2 * * *", "2026-10-04", ZoneInfo("Australia/Lord_Howe")) == ["02:30+1100"]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-07-01"])
def test_what_runs_every_so_often_follows_the_time_that_passes(day: str) -> None:
    minutes = every_minute(day, BERLIN)
    hourly = [at for at in minutes if at.minute == 0]
    assert len(firings_on("0 * * * *", day)) == len(hourly)
    quarters = [at.strftime("%H:%M%z") for at in minutes if at.minute % 15 == 0]
    assert firings_on("*/15 * * * *", day) == quarters


def test_no_moment_comes_twice_when_asked_within_the_hour_that_does() -> None:
    """Asked in its second occurrence, the first is over."""
    timing = Cron("30 2 * * *", "Europe/Berlin")
    second = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # 02:15 for the second time
    assert timing.after(second.timestamp()) == moment("2026-10-26T02:30").timestamp()


@pytest.mark.parametrize(
    "fields", ["0 7 * * MON-FRI", "*/20 1-4 * * *", "0 0 L * *", "5 2,3 * 3,10 SUN"]
)
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]
)
def test_moments_are_the_same_wherever_one_begins_to_ask(fields: str, zone: str) -> None:
    timing = Cron(fields, zone)
    begin = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    year = 366 * 86400
    whole = list(moments(timing, begin, begin + 1.3 * year))
    assert whole == sorted(set(whole))
    for after in range(int(begin), int(begin) + year, 86400 * 9 + 1234):
        following = next(at for at in whole if at > after)
        assert timing.after(after) == following
    for until in range(int(begin) + 86400, int(begin) + year, 86400 * 29 + 77):
        before = [at for at in whole if at <= until]
        assert latest(timing, begin, until) == (before[-1] if before else None)


@pytest.mark.parametrize(
    ("fields", "tz"),
    [
        ("0 7 * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 7 * * *", "Mars/Olympus"),
        ("", "UTC"),
    ],
)
def test_what_is_no_time_is_refused(fields: str, tz: str) -> None:
    with pytest.raises(UsageError):
        cron(fields, tz)


def test_timings_are_read_as_they_are_written() -> None:
    for spec in (cron("0 7 * * mon-fri", "Europe/Berlin"), every("15m"), cron("0 0 7 * * MON")):
        assert parse_timing(str(spec.timing)) == spec.timing
    assert parse_timing("0 7 * * MON") == Cron("0 7 * * MON", "UTC")
    assert parse_timing("every 15m") == every("15m").timing


def test_terms_that_would_lose_firings_are_refused() -> None:
    with pytest.raises(UsageError):
        cron("0 7 * * *", catch_up="all")
    with pytest.raises(UsageError):
        cron("0 7 * * *", overlap="never")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        every(0.1)


# --- what is started ---


async def test_years_of_working_days_fire_each_once_over_changes_of_the_clocks() -> None:
    async with Harness() as harness:
        await made(harness, cron("30 2 * * MON-FRI", "Europe/Berlin", name="tick"))
        begin = harness.clock.now()
        await harness.skip("400d")
        expected = moments(Cron("30 2 * * MON-FRI", "Europe/Berlin"), begin, harness.clock.now())
        assert await scheduled_runs() == [datetime.fromtimestamp(at, UTC) for at in expected]
        days = [at.astimezone(BERLIN).date() for at in await scheduled_runs()]
        assert len(days) == len(set(days)) == pytest.approx(400 * 5 / 7, abs=2)
        page = await list_runs(workflow="tick", status="completed", limit=1)
        assert page.runs[0].attributes == {"schedule": "tick"}


async def test_a_declared_schedule_is_made_changed_and_removed_with_its_workflow() -> None:
    async with Harness() as harness:

        @workflow(name="declared", schedule=every("1h", arguments={"where": "there"}))
        async def first(where: str) -> str:
            return where

        await harness.skip("1h")
        [schedule] = await list_schedules()
        assert (schedule.name, schedule.timing, schedule.in_code) == (
            "declared",
            "every 3600",
            True,
        )
        [run] = (await list_runs(workflow="declared")).runs
        handle = await get_schedule("declared")
        with pytest.raises(Refused):
            await handle.delete()
        await handle.pause()

        @workflow(name="declared", schedule=every("2h", arguments={"where": "elsewhere"}))
        async def second(where: str) -> str:
            return where

        await harness.skip("3h")
        changed = await handle.record()
        assert (changed.timing, changed.paused, changed.last_run) == ("every 7200", True, run.id)

        @workflow(name="declared")
        async def third(where: str) -> str:
            return where

        await harness.skip("3s")
        assert await list_schedules() == []


async def test_a_schedule_asked_for_again_is_left_alone_or_changed() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="again"))
        before = await handle.record()
        await harness.skip("10m")
        await made(harness, every("1h", name="again"))
        assert await handle.record() == before
        await create_schedule(tick, every("1h", name="again"), "elsewhere")
        assert (await handle.record()).input == b'{"where":"elsewhere"}'
        await handle.delete()
        with pytest.raises(NotFound):
            await handle.record()
        await harness.skip("2h")
        assert (await list_runs(workflow="tick")).runs == []


async def test_jitter_spreads_firings_and_is_the_same_everywhere() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="tick", jitter="10m"))
        await harness.skip("100h")
        delays = {round(f.noted_at - f.at, 1) for f in await handle.firings(200)}
        assert len(delays) > 90
        assert all(0 <= delay <= 601 for delay in delays)
        assert max(delays) > 300


async def test_a_schedule_whose_arguments_do_not_fit_says_so_and_others_go_on() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="bad"))

        @workflow(name="tick")
        async def other(count: int) -> None: ...

        try:
            await harness.skip("90m")
            [firing] = await handle.firings()
            assert firing.outcome == "skipped"
            assert "count" in (firing.error or "")
        finally:
            register(tick)


# --- overlap ---


async def test_overlap_skip_leaves_out_what_comes_while_one_is_under_way() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="slow_tick"), slow_tick)
        await harness.skip("3h30m")
        assert await outcomes(handle) == ["started", "skipped", "skipped"]
        await send_event("done")
        await harness.skip("1h")
        assert await outcomes(handle) == ["started", "skipped", "skipped", "started"]


async def test_overlap_queue_runs_them_one_after_the_other() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="slow_tick", overlap="queue"), slow_tick)
        await harness.skip("3h30m")
        assert await outcomes(handle) == ["started", "queued", "queued"]
        for expected in (["started", "started", "queued"], ["started", "started", "started"]):
            await send_event("done")
            await harness.skip("5s")
            assert await outcomes(handle) == expected
        assert len(await scheduled_runs("slow_tick")) == 3
        running = await list_runs(workflow="slow_tick", status=["waiting", "running"])
        assert len(running.runs) == 1


async def test_overlap_cancel_ends_the_run_before() -> None:
    async with Harness() as harness:
        await made(harness, every("1h", name="slow_tick", overlap="cancel"), slow_tick)
        await harness.skip("2h30m")
        page = await list_runs(workflow="slow_tick")
        assert [run.status for run in page.runs] == ["waiting", "cancelled"]


async def test_overlap_allow_has_them_side_by_side() -> None:
    async with Harness() as harness:
        await made(harness, every("1h", name="slow_tick", overlap="allow"), slow_tick)
        await harness.skip("3h30m")
        assert [r.status for r in (await list_runs(workflow="slow_tick")).runs] == ["waiting"] * 3


# --- absence ---


@pytest.mark.parametrize(
    ("catch_up", "overlap", "started"),
    [("skip", "skip", 0), ("one", "skip", 1), ("all", "allow", 24), ("all", "queue", 24)],
)
async def test_what_was_missed_is_made_up_for_as_asked(
    catch_up: str, overlap: str, started: int
) -> None:
    async with Harness() as harness:
        when = cron("30 * * * *", name="tick", catch_up=catch_up, overlap=overlap)  # type: ignore[arg-type]
        handle = await made(harness, when)
        harness.clock.set(moment("2025-06-16T00:10", ZoneInfo("UTC")).timestamp())
        await harness.skip("2s")
        before = len(await scheduled_runs())
        harness.clock.set(moment("2025-06-17T00:10", ZoneInfo("UTC")).timestamp())
        await harness.skip("5s")
        runs = await scheduled_runs()
        assert len(runs) - before == started
        if started == 1:
            assert runs[-1] == moment("2025-06-16T23:30", ZoneInfo("UTC"))
        await harness.skip("30m")
        assert (await scheduled_runs())[-1] == moment("2025-06-17T00:30", ZoneInfo("UTC"))
        missed = [f for f in await handle.firings(200) if f.outcome == "missed"]
        assert bool(missed) == (catch_up != "all")


async def test_a_killed_worker_misses_and_doubles_nothing() -> None:
    async with Harness() as harness:
        await made(harness, every("1h", name="tick", overlap="queue", catch_up="all"))
        begin = harness.clock.now()
        for _ in range(50):
            await harness.skip("47m")
            await harness.crash()
        await harness.until_blocked()
        expected = moments(every("1h").timing, begin, harness.clock.now())
        assert await scheduled_runs() == [datetime.fromtimestamp(at, UTC) for at in expected]


# --- steering ---


async def test_a_paused_schedule_fires_again_once_resumed_and_makes_up_for_nothing() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="tick", overlap="queue", catch_up="all"))
        await handle.pause()
        assert await handle.next_firings() == []
        await harness.skip("10h")
        assert await scheduled_runs() == []
        await handle.resume()
        await harness.skip("1h")
        assert len(await scheduled_runs()) == 1


async def test_trigger_starts_one_now_and_keeps_to_overlap() -> None:
    async with Harness() as harness:
        handle = await made(harness, every("1h", name="slow_tick"), slow_tick)
        run_id = await handle.trigger()
        await harness.until_blocked()
        assert (await handle.record()).last_run == run_id
        with pytest.raises(Refused):
            await handle.trigger()
        await made(harness, every("1h", name="slow_tick", overlap="queue"), slow_tick)
        assert await handle.trigger() is None
        await send_event("done")
        await harness.skip("2s")
        assert (await handle.record()).last_run != run_id


async def test_a_backfill_runs_each_moment_once() -> None:
    async with Harness() as harness:
        handle = await made(harness, cron("0 12 * * *", "Europe/Berlin", name="tick"))
        day = datetime.fromtimestamp(harness.clock.now(), UTC)
        done = await handle.backfill(day - timedelta(days=10), day)
        assert (done.started, done.queued, done.existed) == (0, 10, 0)
        await harness.skip("5s")
        assert len(await scheduled_runs()) == 10
        again = await handle.backfill(day - timedelta(days=12), day)
        assert (again.queued, again.existed) == (2, 10)
        await harness.skip("5s")
        assert len(await scheduled_runs()) == 12
        newest = (await list_runs(workflow="tick", limit=1)).runs[0]
        result = await (await get_run(newest.id)).result()
        assert datetime.fromisoformat(result.removeprefix("here ")) in await scheduled_runs()
        with pytest.raises(Refused):
            await handle.backfill(day, day + timedelta(days=3))
        with pytest.raises(Refused):
            await (await made(harness, every("1s", name="often"))).backfill(
                day - timedelta(days=9), day
            )


async def test_the_next_firings_are_shown() -> None:
    async with Harness() as harness:
        handle = await made(harness, cron("0 7 * * MON-FRI", "Europe/Berlin", name="tick"))
        found = [datetime.fromtimestamp(at, BERLIN) for at in await handle.next_firings(6)]
        assert [at.strftime("%a %H:%M") for at in found][:2] == ["Mon 07:00", "Tue 07:00"]
