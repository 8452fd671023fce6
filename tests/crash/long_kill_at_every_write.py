"""A worker killed with -9 at every write, sync and truncation of its store's files.

    make crash

strace sends the signal as the system call is entered. Not part of `make test`: every kill takes
a fresh interpreter under strace. CRASH_STRIDE=10 takes every tenth only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.checks import check_ended, check_kept, check_whole, journals
from crash.worker import TESTS, Nursery, Order
from crash.workflows import EXPECTED
from waiting import LIMIT

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace"),
]

LEAST = {"pwrite64": 80, "fdatasync": 8, "ftruncate": 1}
STRIDE = int(os.environ.get("CRASH_STRIDE", "1"))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


def killed_at(folder: Path, workflow: str, call: str, place: int) -> bool:
    """Run a worker that is killed at the n-th such call of one of its threads."""
    program = [sys.executable, str(TESTS / "crash" / "traced.py"), str(folder / "store.db")]
    inject = f"inject={call}:signal=KILL:when={place}"
    # Without --seccomp-bpf, which is faster but does not count the calls.
    trace = ["strace", "-f", "-qq", "-e", f"trace={call}", "-e", inject]
    done = subprocess.run(
        [*trace, "-o", "/dev/null", *program, workflow],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    acknowledged = [line for line in done.stdout.splitlines() if line.startswith('["ack", ')]
    lines = [line.replace('["ack", ', "[", 1) for line in acknowledged]
    (folder / "acknowledged").write_text("".join(f"{line}\n" for line in lines))
    return done.returncode in (-9, 137)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate"])
@pytest.mark.parametrize("workflow", ["sequential", "parallel", "mixed"])
def test_a_worker_killed_at_any_write_loses_nothing(
    nursery: Nursery, tmp_path: Path, workflow: str, call: str
) -> None:
    kills, place = 0, 1
    while True:
        folder = tmp_path / f"{place}"
        folder.mkdir()
        if not killed_at(folder, workflow, call, place):
            break
        store = folder / "store.db"
        check_kept(journals(store) if store.exists() else {}, folder / "acknowledged")
        death = nursery.live(Order(store=str(store), workflow=workflow))
        assert not death.error, death.error
        assert death.result == EXPECTED[workflow]
        found = journals(store)
        check_whole(found)
        check_kept(found, folder / "acknowledged")
        check_ended(store)
        shutil.rmtree(folder)
        kills, place = kills + 1, place + STRIDE
    print(f"\n{workflow}: {kills} kills at {call}, 0 lost or doubled")
    assert kills >= LEAST[call] / STRIDE
