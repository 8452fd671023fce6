"""Nothing outlives its host process: not when it is killed, not what was left before a reboot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sandbox import Host, cleanup
from sandbox.support import require, until

PROGRAM = """
import asyncio, json, sys
from holdfast.sandbox import Host, Sandbox
async def main():
    host = Host(sys.argv[1], pool=2, packages=())
    made = [await Sandbox.create(backend=sys.argv[2], host=host, timeout=60) for _ in range(3)]
    for sandbox in made:
        await sandbox.start("sh", "-c", "trap '' TERM HUP; (setsid sleep 300 &); sleep 300")
    print(json.dumps([s.id for s in made]), flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""


def _processes_of(folder_name: str) -> list[int]:
    """Processes whose cgroup belongs to this host folder, or that serve it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = (
                Path(f"/proc/{pid}/cgroup").read_text() + Path(f"/proc/{pid}/mountinfo").read_text()
            )
        except OSError:
            continue
        if folder_name in text:
            found.append(int(pid))
    return found


def _cgroups_of(folder_name: str) -> list[str]:
    return [str(p) for p in Path("/sys/fs/cgroup").rglob(f"holdfast-{folder_name}*")]


@pytest.fixture
def started(backend: str, tmp_path: Path):
    state = tmp_path / "s"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(state), backend], stdout=subprocess.PIPE
    )
    try:
        ids = json.loads(process.stdout.readline())
        (folder,) = (state / "hosts").iterdir()
        yield process, state, folder, ids
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_host_killed_with_9_leaves_nothing(started, backend: str) -> None:
    process, state, folder, ids = started
    assert len(ids) == 3
    if os.geteuid() == 0:
        assert _processes_of(folder.name), "void: nothing runs"
        assert _cgroups_of(folder.name), "void: there are no cgroups"
    process.send_signal(signal.SIGKILL)
    process.wait()
    await until(lambda: not _processes_of(folder.name))
    await until(lambda: not folder.exists())
    await until(lambda: not _cgroups_of(folder.name))
    assert not list(state.glob("hosts/*"))


@pytest.mark.parametrize("name", ["namespace", "gvisor"])
async def test_a_host_killed_before_its_first_sandbox_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    program = (
        "import sys, time\nfrom holdfast.sandbox import Host\n"
        "Host(sys.argv[1]).backend(sys.argv[2])\nprint('made', flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), name], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"made\n"
        (folder,) = (tmp_path / "hosts").iterdir()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    await until(lambda: not folder.exists())
    await until(lambda: not _cgroups_of(folder.name))


async def test_what_even_the_launcher_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    require("namespace")
    state = tmp_path / "s"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(state), "namespace"], stdout=subprocess.PIPE
    )
    json.loads(process.stdout.readline())
    process.stdout.close()
    (folder,) = (state / "hosts").iterdir()
    children = [
        int(pid)
        for thread in Path(f"/proc/{process.pid}/task").iterdir()
        for pid in (thread / "children").read_text().split()
    ]
    assert len(children) == 2, "void: the launcher and the janitor are not all that runs"
    for pid in (*children, process.pid):  # those that would clean up go first
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert folder.exists()
    host = Host(state, pool=0)
    try:
        assert host.swept == [folder.name]
        assert not folder.exists() and not _cgroups_of(folder.name)
        await until(lambda: not _processes_of(folder.name))
    finally:
        await host.aclose()
    assert not list((state / "hosts").iterdir())


async def test_a_running_host_is_not_swept(tmp_path: Path) -> None:
    one = Host(tmp_path, pool=0)
    two = Host(tmp_path, pool=0)
    assert two.swept == [] and one.folder.path.exists()
    one.close()
    two.close()
    assert not list((tmp_path / "hosts").iterdir())


def test_a_record_from_before_a_reboot_is_removed_and_no_stranger_killed(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        folder = tmp_path / "hosts/host_old"
        (folder / "sandboxes").mkdir(parents=True)
        (folder / "lease").touch()
        record = {"pid": stranger.pid, "born": 1, "cgroups": ["/sys/fs/cgroup/none/sbx_gone"]}
        (folder / "sandboxes/sbx_old.json").write_text(json.dumps(record))
        (folder / "sandboxes/sbx_torn.json").write_text('{"pid": ')
        assert cleanup.sweep(str(tmp_path)) == ["host_old"]
        assert not folder.exists()
        assert stranger.poll() is None, "the pid is another process's now"
        record["born"] = cleanup.start_time(stranger.pid)
        cleanup.kill(record)
        assert stranger.wait(5) == -signal.SIGKILL, "void: it would not have been killed at all"
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_sandbox_whose_agent_is_killed_from_outside_is_removed(backend: str) -> None:
    from sandbox.support import create

    sandbox = await create(backend)
    command = await sandbox.start("sleep", "60")
    sandbox._instance.kill()
    assert (await command.wait()).ended == "stopped"
    await until(lambda: sandbox.id not in sandbox.host.sandboxes)
    assert sandbox.record.stopped_because == "ended from outside"


async def test_killing_the_fork_server_spares_running_sandboxes_and_another_is_started(
    tmp_path: Path,
) -> None:
    require("namespace")
    from holdfast.sandbox import Sandbox

    host = Host(tmp_path, pool=0)
    one = await Sandbox.create(backend="namespace", host=host)
    host._backends["namespace"]._launcher.kill()
    host._backends["namespace"]._launcher.wait()
    two = await Sandbox.create(backend="namespace", host=host)
    assert (await two.run("echo", "2")).stdout == "2\n"
    assert (await one.run("echo", "1")).stdout == "1\n"
    await host.aclose()
    assert not list((tmp_path / "hosts").iterdir())
