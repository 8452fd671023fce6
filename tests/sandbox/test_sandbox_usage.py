"""What a command used: the kernel's count before the agent's word, and unknown before invented."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.sandbox import Host, Sandbox
from holdfast.sandbox.base import Usage
from holdfast.sandbox.namespace import backend
from holdfast.sandbox.namespace.cgroups import Cgroup
from holdfast.sandbox.usage import Metering, Use
from sandbox.support import create

MB = 1 << 20
BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@dataclass
class Counted:
    """An instance of which only the counts matter."""

    now: Usage = field(default_factory=Usage)
    whole: Usage | None = None
    resets: bool = False
    restarted: int = 0

    def usage(self, *, thorough: bool = False) -> Usage:
        return self.whole if thorough and self.whole is not None else self.now

    def restart_peak(self) -> bool:
        self.restarted += self.resets
        return self.resets


def metering(instance: Counted, most: int | None = 512 * MB) -> Metering:
    return Metering(instance, most)  # pyright: ignore[reportArgumentType]


def test_a_command_alone_has_what_the_kernel_counted_whatever_the_agent_says() -> None:
    box = Counted(Usage(cpu_seconds=5.0, peak_memory=90 * MB), resets=True)
    meter = metering(box).begin()
    box.now = Usage(cpu_seconds=6.5, peak_memory=40 * MB)  # counted anew since it began
    assert meter.end(0.001, 1) == Use(1.5, 40 * MB)
    assert box.restarted == 1


def test_of_commands_beside_each_other_the_agent_tells_up_to_what_was_counted() -> None:
    box = Counted(Usage(cpu_seconds=1.0, peak_memory=10 * MB), resets=True)
    meters = metering(box)
    first, second = meters.begin(), meters.begin()
    assert box.restarted == 1  # the second must not take the first one's peak away
    box.now = Usage(cpu_seconds=3.0, peak_memory=60 * MB)
    assert first.end(0.5, 20 * MB) == Use(0.5, 20 * MB)
    assert second.end(99.0, 1 << 60) == Use(2.0, 60 * MB)
    third = meters.begin()
    box.now = Usage(cpu_seconds=3.25, peak_memory=30 * MB)
    assert third.end(None, None) == Use(0.25, 30 * MB)  # alone again


def test_a_peak_that_can_not_be_restarted_is_a_commands_only_if_it_rose() -> None:
    box = Counted(Usage(peak_memory=80 * MB))
    meters = metering(box)
    assert meters.begin().end(None, 30 * MB).peak_memory == 30 * MB
    assert meters.begin().end(None, 300 * MB).peak_memory == 80 * MB
    meter = meters.begin()
    box.now = Usage(peak_memory=120 * MB)
    assert meter.end(None, 30 * MB).peak_memory == 120 * MB


@pytest.mark.parametrize(
    "lie", [None, True, -1, -0.5, math.nan, "7", [7], {"a": 1}], ids=lambda lie: repr(lie)
)
def test_what_is_no_number_is_unknown(lie: object) -> None:
    assert metering(Counted()).begin().end(lie, lie) == Use(None, None)


@pytest.mark.parametrize("lie", [math.inf, 10**400, 1e300], ids=["inf", "huge", "large"])
def test_more_than_is_possible_is_cut_to_that(lie: object) -> None:
    used = metering(Counted()).begin().end(lie, lie)
    assert used.cpu_seconds is not None and used.cpu_seconds < 60 * (os.cpu_count() or 1)
    assert used.peak_memory == 512 * MB


def test_no_memory_at_all_means_nobody_knows() -> None:
    assert metering(Counted()).begin().end(0.0, 0) == Use(0.0, None)


def test_a_sandbox_has_the_highest_of_all_peaks_though_each_was_counted_anew() -> None:
    box = Counted(Usage(cpu_seconds=0.1, peak_memory=5 * MB), resets=True)
    meters = metering(box)
    for peak in (200 * MB, 10 * MB):
        meter = meters.begin()
        box.now = Usage(cpu_seconds=2.0, peak_memory=peak)
        meter.end(None, None)
    total = meters.total()
    assert (total.cpu_seconds, total.peak_memory) == (2.0, 200 * MB)


def test_where_nothing_is_counted_a_sandbox_has_what_its_commands_told() -> None:
    box = Counted()
    meters = metering(box)
    assert meters.total() == Usage()  # no command: unknown, not 0
    box.whole = Usage()
    for _ in range(2):
        meters.begin().end(0.0, 3 * MB)
    meters.begin().drop()
    assert (meters.total().cpu_seconds, meters.total().peak_memory) == (0.0, 3 * MB)


def test_what_is_only_seen_while_it_lives_is_kept() -> None:
    box = Counted(whole=Usage(cpu_seconds=1.5, disk_used=7 * MB))
    meters = metering(box)
    meters.look()
    box.whole = Usage(cpu_seconds=0.2)  # a process that is being taken down
    assert (meters.total().cpu_seconds, meters.total().disk_used) == (1.5, 7 * MB)


def test_cgroups_of_version_1_tell_time_and_peak(tmp_path: Path) -> None:
    (tmp_path / "cpuacct.usage").write_text("2500000000\n")
    peak = tmp_path / "memory.max_usage_in_bytes"
    peak.write_text("4096\n")
    group = Cgroup(1, {"memory": str(tmp_path), "cpuacct": str(tmp_path)})
    assert (group.usage().cpu_seconds, group.usage().peak_memory) == (2.5, 4096)
    assert group.restart_peak()
    assert peak.read_text()[0] == "0"


def test_cgroups_of_version_2_tell_time_and_peak(tmp_path: Path) -> None:
    group = Cgroup(2, {"memory": str(tmp_path), "cpu": str(tmp_path)})
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert (group.usage().cpu_seconds, group.usage().peak_memory) == (1.5, None)
    assert not group.restart_peak()  # a kernel before 5.19 has no such file
    (tmp_path / "memory.peak").write_text("4096\n")
    assert group.usage().peak_memory == 4096
    assert group.restart_peak()
    assert group.usage().peak_memory == 96  # what it tells through the descriptor it was told by
    group.close()


def test_a_version_2_peak_that_can_not_be_restarted_is_still_told(tmp_path: Path) -> None:
    (tmp_path / "memory.peak").mkdir()  # opening it for writing fails, as does writing to it
    group = Cgroup(2, {"memory": str(tmp_path)})
    assert not group.restart_peak()
    (tmp_path / "memory.peak").rmdir()
    (tmp_path / "memory.peak").write_text("4096\n")
    assert group.usage().peak_memory == 4096


def test_the_time_of_a_process_and_all_below_it_is_added_up() -> None:
    before = backend.cpu_seconds(os.getpid())
    ready, say = os.pipe()
    done, finish = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                end = os.times().user + 0.2
                while os.times().user < end:
                    pass
                os.write(say, b"x")
                os.read(done, 1)
            else:
                os.read(done, 1)
        finally:
            os._exit(0)
    os.read(ready, 1)
    spent = backend.cpu_seconds(child)
    whole = backend.cpu_seconds(os.getpid())
    os.write(finish, b"xx")
    os.waitpid(child, 0)
    for fd in (ready, say, done, finish):
        os.close(fd)
    assert spent is not None and whole is not None and before is not None
    assert spent >= 0.15 and whole - before >= 0.15  # of the grandchild, which still runs
    assert backend.cpu_seconds(child) is None


async def test_without_cgroups_the_agent_and_the_process_list_tell(tmp_path: Path) -> None:
    host = Host(tmp_path, pool=0, use_cgroups=False)
    try:
        async with await Sandbox.create(backend="namespace", host=host, timeout=60) as sandbox:
            burnt = await sandbox.run("python", "-c", BURN)
            held = await sandbox.run("python", "-c", f"x = b'x' * {64 * MB}")
            await sandbox.shell("head -c 3000000 /dev/zero > f")
            more = f"{BURN}\n{BURN}\nprint(1, flush=1)\nwhile 1: pass"
            left = await sandbox.start("python", "-c", more)
            async for _ in left:
                break  # it has used twice as much as the first, and goes on
        assert burnt.cpu_seconds is not None and 0.29 <= burnt.cpu_seconds <= burnt.seconds
        assert held.peak_memory is not None and 64 * MB <= held.peak_memory < 256 * MB
        record = sandbox.record
        assert (record.cpu_seconds or 0) >= 0.55, record  # what ran at its end is in it
        assert record.peak_memory == held.peak_memory
        assert record.disk_used is not None and 3_000_000 <= record.disk_used < 3_100_000
        assert (await left.wait()).cpu_seconds is None  # ended unheard: nobody could tell
    finally:
        await host.aclose()


async def test_each_command_has_a_peak_of_its_own(sandbox_state: str) -> None:
    async with await create() as sandbox:
        large = await sandbox.run("python", "-c", f"x = b'x' * {64 * MB}")
        small = await sandbox.run("true")
    assert large.peak_memory is not None and small.peak_memory is not None
    assert small.peak_memory < 32 * MB < 64 * MB <= large.peak_memory
    assert sandbox.record.peak_memory == large.peak_memory
