"""Power cuts at every write of three workflows, with `synchronous` FULL and, as a control, NORMAL.

    make crash

Not part of `make test`: it takes some minutes. Needs strace.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crash.checks import check_kept, journals
from crash.power import images, record
from crash.worker import Nursery, Order
from crash.workflows import EXPECTED
from holdfast import StoreError
from holdfast.store.sqlite import schema

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace"),
]

WORKFLOWS = ["sequential", "parallel", "mixed"]
CARRY_ON_EVERY = 40


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


def lost(store: Path) -> str:
    """What is wrong with a store after a power cut, or nothing."""
    try:
        schema.connect(store).close()
        with closing(sqlite3.connect(store)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                return str(found)
        check_kept(journals(store), store.parent / "acknowledged")
    except (AssertionError, StoreError, sqlite3.Error) as error:
        return str(error) or type(error).__name__
    return ""


def cut(folder: Path, workflow: str, *options: str) -> Iterator[tuple[Path, str]]:
    """Each image, put on disk, and what is wrong with it."""
    operations = record(folder / "recorded", workflow, *options)
    for image in images(operations, seed=1, extra=4):
        with tempfile.TemporaryDirectory(
            dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        ) as at:
            store = image.put(Path(at) / "image")
            yield store, lost(store)


def _let_leases_expire(store: Path) -> None:
    """Time has passed since the power went."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE workers SET lease_until = 0")
        connection.commit()


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(
    nursery: Nursery, tmp_path: Path, workflow: str
) -> None:
    count = carried_on = 0
    for store, problem in cut(tmp_path, workflow):
        assert not problem, f"image {count}: {problem}"
        if count % CARRY_ON_EVERY == 0:
            _let_leases_expire(store)
            death = nursery.live(Order(store=str(store), workflow=workflow))
            assert not death.error, death.error
            assert death.result == EXPECTED[workflow]
            carried_on += 1
        count += 1
    print(f"\n{workflow}: {count} power-cut images, 0 lost; {carried_on} carried on to the end")
    assert count > 300


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_with_synchronous_normal_acknowledged_events_are_lost(
    tmp_path: Path, workflow: str
) -> None:
    problems = [problem for _, problem in cut(tmp_path, workflow, "NORMAL")]
    bad = [problem for problem in problems if problem]
    print(f"\n{workflow}, synchronous=NORMAL: {len(problems)} images, {len(bad)} with a loss")
    assert any("was acknowledged and is gone" in problem for problem in bad)
