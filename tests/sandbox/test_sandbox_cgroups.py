"""Version 2 of cgroups on the real kernel, as far as this machine has it.

Where version 1 holds the controllers, as in many containers, a mount of version 2 has none of
them: limits can't be tried there, and the test says so. Freezing, thawing and killing need none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sandbox import cleanup
from holdfast.sandbox.namespace import cgroups
from holdfast.sandbox.spec import Limits
from waiting import LIMIT

COUNT = """
import sys
n = 0
while True:
    n += 1
    with open(sys.argv[1], 'r+b', 0) as file:
        file.write(b'%012d' % n)
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "v2"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount it")
    tried = subprocess.run(
        ["mount", "-t", "cgroup2", "none", str(place)], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"version 2 can't be mounted: {tried.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_version_2_freezes_thaws_and_kills(mounted: Path, tmp_path: Path) -> None:
    folder = mounted / f"holdfast-test-{os.getpid()}"
    folder.mkdir()
    file = tmp_path / "count"
    file.write_bytes(b"0" * 12)
    process = subprocess.Popen([sys.executable, "-c", COUNT, str(file)])
    try:
        (folder / "cgroup.procs").write_text(str(process.pid))
        group = cgroups.Cgroup(2, {"pids": str(folder)})
        assert group.freeze()
        before = file.read_bytes()
        time.sleep(0.2)
        assert file.read_bytes() == before
        group.thaw()
        deadline = time.monotonic() + LIMIT
        while file.read_bytes() == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert group.freeze()  # what is frozen must go too
        assert cleanup.remove_cgroup(str(folder), wait=30.0)
        assert process.wait(LIMIT) < 0
    finally:
        process.kill()
        process.wait()
        cleanup.remove_cgroup(str(folder), wait=30.0)


def test_version_2_takes_our_limits(mounted: Path, tmp_path: Path) -> None:
    there = (mounted / "cgroup.controllers").read_text().split()
    lacking = [each for each in cgroups.CONTROLLERS if each not in there]
    if lacking:
        pytest.skip(f"version 1 holds {', '.join(lacking)} here: version 2 has only {there}")
    mountinfo, own = tmp_path / "mountinfo", tmp_path / "own"
    mountinfo.write_text(f"1 1 0:1 / {mounted} rw - cgroup2 none rw\n")
    own.write_text("0::/\n")
    name = f"holdfast-test-{os.getpid()}"
    found = cgroups.find(name, mountinfo=str(mountinfo), own=str(own))
    try:
        assert found.missing == {}
        group = found.make("sbx_1", Limits())
        folder = Path(group.paths[0])
        assert (folder / "memory.max").read_text().strip() == str(Limits().memory)
        assert int((folder / "pids.max").read_text()) > Limits().pids
        assert group.usage().memory_kills == 0
    finally:
        for path in (mounted / name / "sbx_1", mounted / name):
            cleanup.remove_cgroup(str(path), wait=30.0)
