"""Records of sandboxes: written in order by the process that has them, read a page at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import StoreError, UsageError
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.parts import StoreParts
from holdfast.store.sandboxes import Dropped, SandboxFilter, SandboxRecords, SandboxWriter
from holdfast.testing.store_conformance.records import Conformance

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOX = SandboxRecord(
    id="sbx_1",
    backend="namespace",
    isolation="shares the kernel",
    runtime="python",
    created_at=NOON,
    timeout=300.0,
    cpus=1.0,
    memory=1 << 40,
    disk=1 << 29,
    pids=256,
    network=("packages.example:443",),
    source=None,
    run_id="run_1",
    workflow="evaluate",
    step="run_tests",
    step_key="0/3",
    attempt=2,
)
STARTED = CommandRecord(
    id="cmd_1",
    sandbox_id="sbx_1",
    argv=("python", "-c", "print(1)"),
    cwd="/workspace",
    started_at=NOON,
    run_id="run_1",
    workflow="evaluate",
    step="run_tests",
    step_key="0/3",
    attempt=2,
)
ENDED = replace(
    STARTED,
    ended_at=NOON + timedelta(seconds=2),
    ended="exited",
    exit_code=1,
    seconds=2.0,
    limits_hit=("disk",),
    stdout_bytes=70_000,
    stdout_tail="é\0…end",
    stdout_cut=4464,
    cpu_seconds=1.25,
    peak_memory=41 << 20,
)
ATTEMPT = EgressRecord(
    "sbx_1", NOON, "packages.example", 443, True, "rule", "192.0.2.1", 10, 20, "run_1"
)
DAY = 86_400.0


async def write(parts: StoreParts, *writes: Callable[[SandboxWriter], None]) -> None:
    """Have records written, by a process of their own."""
    writer = parts.sandbox_writer()
    for each in writes:
        each(writer)
    await asyncio.to_thread(writer.close)


@asynccontextmanager
async def reading(parts: StoreParts) -> AsyncGenerator[SandboxRecords]:
    records = parts.sandbox_records()
    try:
        yield records
    finally:
        await records.close()


class SandboxConformance(Conformance):
    """What is written is what is read."""

    async def test_a_sandbox_its_commands_and_attempts_are_read_back(
        self, parts: StoreParts
    ) -> None:
        stopped = replace(
            BOX,
            stopped_at=NOON + timedelta(seconds=5),
            stopped_because="stopped",
            cpu_seconds=2.5,
            peak_memory=90 << 20,
            disk_used=0,
        )
        await write(
            parts,
            lambda w: w.add_sandbox(BOX),
            lambda w: w.add_command(STARTED),
            lambda w: w.end_command(ENDED),
            lambda w: w.add_egress(ATTEMPT),
            lambda w: w.stop_sandbox(stopped),
        )
        async with reading(parts) as records:
            assert await records.get("sbx_1") == stopped
            assert (await records.list()).sandboxes == [stopped]
            assert await records.command("cmd_1") == ENDED
            assert (await records.commands(sandbox_id="sbx_1")).commands == [ENDED]
            assert (await records.egress(sandbox_id="sbx_1")).attempts == [ATTEMPT]
            assert await records.get("sbx_2") is None
            assert await records.command("cmd_2") is None

    async def test_what_was_put_is_there_after_a_flush_and_still_open(
        self, parts: StoreParts
    ) -> None:
        writer = parts.sandbox_writer()
        writer.add_sandbox(BOX)
        writer.add_command(STARTED)
        await asyncio.to_thread(writer.flush)
        async with reading(parts) as records:
            await records.notice_the_dead()
            found, command = await records.get("sbx_1"), await records.command("cmd_1")
        assert (found, command) == (BOX, STARTED)
        await asyncio.to_thread(writer.close)
        with pytest.raises(StoreError, match="closed"):
            writer.add_egress(ATTEMPT)

    async def test_sandboxes_are_listed_newest_first_by_page_run_and_state(
        self, parts: StoreParts
    ) -> None:
        boxes = [
            replace(
                BOX,
                id=f"sbx_{n}",
                created_at=NOON + timedelta(seconds=n // 2),  # pairs of the same moment
                run_id="run_1" if n % 2 else "run_2",
            )
            for n in range(7)
        ]
        writer = parts.sandbox_writer()
        for box in boxes:
            writer.add_sandbox(box)
        for box in boxes[:3]:
            writer.stop_sandbox(replace(box, stopped_at=NOON, stopped_because="x"))
        await asyncio.to_thread(writer.flush)
        async with reading(parts) as records:
            seen: list[str] = []
            cursor = None
            while True:
                page = await records.list(limit=2, cursor=cursor)
                seen += [box.id for box in page.sandboxes]
                cursor = page.cursor
                if cursor is None:
                    break
            assert seen == [f"sbx_{n}" for n in reversed(range(7))]

            async def ids(**which: Any) -> list[str]:
                return [box.id for box in (await records.list(SandboxFilter(**which))).sandboxes]

            assert await ids(run_id="run_1") == ["sbx_5", "sbx_3", "sbx_1"]
            assert await ids(live=True) == ["sbx_6", "sbx_5", "sbx_4", "sbx_3"]
            assert await ids(live=False, run_id="run_2") == ["sbx_2", "sbx_0"]
            for limit in (0, 1001):
                with pytest.raises(UsageError):
                    await records.list(limit=limit)
        await asyncio.to_thread(writer.close)

    async def test_commands_are_found_by_sandbox_run_and_step_in_order(
        self, parts: StoreParts
    ) -> None:
        writer = parts.sandbox_writer()
        for n in range(6):
            begun = NOON + timedelta(seconds=n)
            place = {"sandbox_id": f"sbx_{n % 2}", "step_key": f"0/{n % 3}"}
            writer.add_command(replace(STARTED, id=f"cmd_{n}", started_at=begun, **place))
        await asyncio.to_thread(writer.flush)
        async with reading(parts) as records:

            async def ids(**where: Any) -> list[str]:
                return [c.id for c in (await records.commands(**where)).commands]

            assert await ids(run_id="run_1") == [f"cmd_{n}" for n in range(6)]
            assert await ids(run_id="run_1", step_key="0/1") == ["cmd_1", "cmd_4"]
            assert await ids(sandbox_id="sbx_1") == ["cmd_1", "cmd_3", "cmd_5"]
            assert await ids(run_id="run_9") == []
            first = await records.commands(run_id="run_1", limit=4)
            assert first.cursor == "cmd_3"
            rest = await records.commands(run_id="run_1", limit=4, cursor=first.cursor)
            assert [c.id for c in rest.commands] == ["cmd_4", "cmd_5"]
            assert rest.cursor is None
        await asyncio.to_thread(writer.close)

    async def test_attempts_to_reach_the_network_come_in_pages(self, parts: StoreParts) -> None:
        attempts = [replace(ATTEMPT, port=n, allowed=bool(n % 2)) for n in range(5)]
        writer = parts.sandbox_writer()
        for attempt in attempts:
            writer.add_egress(attempt)
        await asyncio.to_thread(writer.close)
        async with reading(parts) as records:
            first = await records.egress(run_id="run_1", limit=3)
            rest = await records.egress(run_id="run_1", limit=3, cursor=first.cursor)
            assert [*first.attempts, *rest.attempts] == attempts
            assert rest.cursor is None

    async def test_long_arguments_are_cut_and_odd_ones_kept_readable(
        self, parts: StoreParts
    ) -> None:
        argv = ("python", "-c", "x" * 70_000, "\udcff", "a\0b", "last")
        await write(parts, lambda w: w.add_command(replace(STARTED, argv=argv)))
        async with reading(parts) as records:
            kept = await records.command("cmd_1")
        assert kept is not None
        assert kept.argv[:2] == ("python", "-c")
        assert kept.argv[2].endswith("x…")
        assert sum(map(len, kept.argv)) < 70_000

    async def test_one_record_that_can_never_be_written_does_not_hold_up_the_others(
        self, parts: StoreParts, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.ERROR, "holdfast")
        other = replace(BOX, id="sbx_2")
        await write(
            parts,
            lambda w: w.add_sandbox(BOX),
            lambda w: w.add_sandbox(BOX),
            lambda w: w.add_sandbox(other),
        )
        assert "could not be written" in caplog.text
        async with reading(parts) as records:
            assert [b.id for b in (await records.list()).sandboxes] == ["sbx_2", "sbx_1"]

    async def test_records_that_are_old_are_dropped_with_all_they_have(
        self, parts: StoreParts
    ) -> None:
        now = datetime.now(UTC)

        def ago(days: float) -> datetime:
            return now - timedelta(days=days)

        def box(
            id: str, made: float, stopped: float | None
        ) -> list[Callable[[SandboxWriter], None]]:
            """A sandbox with a command and an attempt, made and stopped so many days ago."""
            record = replace(BOX, id=id, created_at=ago(made))
            begun = replace(STARTED, id=f"{id}_c", sandbox_id=id, started_at=ago(made))
            seen = replace(ATTEMPT, sandbox_id=id, at=ago(made))
            found: list[Callable[[SandboxWriter], None]] = [
                lambda w: w.add_sandbox(record),
                lambda w: w.add_command(begun),
                lambda w: w.add_egress(seen),
            ]
            if stopped is not None:
                ended = replace(begun, ended_at=ago(stopped), ended="exited", exit_code=0)
                over = replace(record, stopped_at=ago(stopped), stopped_because="stopped")
                found.append(lambda w: w.end_command(ended))
                found.append(lambda w: w.stop_sandbox(over))
            return found

        live = parts.sandbox_writer()
        for each in [
            *box("sbx_old", 40, 39),
            *box("sbx_new", 5, 5),
            *box("sbx_long", 40, 1),  # made long ago, but used until yesterday
            *box("sbx_live", 40, None),
        ]:
            each(live)
        await asyncio.to_thread(live.flush)
        assert await asyncio.to_thread(parts.prune_sandboxes, 30 * DAY) == Dropped(1, 1, 1)
        assert await asyncio.to_thread(parts.prune_sandboxes, 30 * DAY) == Dropped()
        async with reading(parts) as records:
            left = {b.id for b in (await records.list()).sandboxes}
            assert left == {"sbx_new", "sbx_long", "sbx_live"}
            assert await records.command("sbx_old_c") is None
            assert (await records.egress(sandbox_id="sbx_old")).attempts == []
            keeping = parts.sandbox_writer(keep=3 * DAY)
            keeping.add_egress(ATTEMPT)
            await asyncio.to_thread(keeping.close)
            left = {b.id for b in (await records.list()).sandboxes}
            assert left == {"sbx_long", "sbx_live"}, "a writer drops what is older than is kept"
        await asyncio.to_thread(live.close)
