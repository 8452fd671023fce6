"""Opening a store: safe from any number of processes at once, whatever state it is in."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.store.sqlite import schema
from waiting import LIMIT

PROGRAM = Path(__file__).with_name("opening.py")


def opening(*arguments: object) -> str:
    """What the program says; it fails if any of its processes does."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_new_store_is_opened_by_20_processes_at_once(tmp_path: Path) -> None:
    assert opening("new", tmp_path, 20, 12) == "12 stores\n"


def test_an_old_store_is_migrated_once_when_20_processes_open_it(tmp_path: Path) -> None:
    assert opening("old", tmp_path, 20, 5) == "5 stores\n"


def test_a_store_whose_maker_was_killed_at_any_statement_is_made_by_the_next(
    tmp_path: Path,
) -> None:
    kills = int(opening("killed", tmp_path, 3).split()[0])
    assert kills > len(schema.migrations()), "it was killed in the middle of its migrations"


def test_a_store_is_made_while_somebody_reads_the_file(tmp_path: Path) -> None:
    """SQLite refuses to begin a log under a reader's eyes: opening waits until it is done."""
    store = tmp_path / "store.db"
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (a)")
        other.execute("DROP TABLE t")
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        tried: list[str] = []
        real = schema.time.sleep

        def asleep(seconds: float) -> None:
            tried.append("again")
            if len(tried) == 3:
                other.execute("COMMIT")
            real(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schema.time, "sleep", asleep)
            schema.connect(store).close()
        assert len(tried) == 3


def test_somebody_elses_database_keeps_its_journal_mode(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE distances (a)")
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="is no Holdfast store"):
        schema.connect(theirs)
    assert theirs.read_bytes() == before


def test_a_store_that_is_ready_is_opened_without_its_lock(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    schema.connect(store).close()
    lock = tmp_path / "store.db.lock"
    lock.unlink()
    schema.connect(store).close()
    assert not lock.exists()


def test_a_link_to_a_store_shares_its_lock(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there" / "store.db")
    schema.connect(link).close()
    assert (tmp_path / "there" / "store.db.lock").exists()
    assert not (tmp_path / "link.db.lock").exists()


USED = """
import asyncio, sys
from holdfast import open_engine, start, workflow, sleep

@workflow
async def nap() -> None:
    await sleep("1h")

async def main():
    async with open_engine(sys.argv[1]) as engine:
        await start(nap)
        await engine.store.renew(engine.me)
        print("used", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def used_until_killed(store: Path) -> None:
    """A store with a run in it, whose only worker was killed with what it wrote in the log."""
    command = [sys.executable, "-c", USED, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "used\n"
        os.kill(worker.pid, signal.SIGKILL)


def test_a_store_without_its_log_is_refused_and_opens_again_with_it(tmp_path: Path) -> None:
    store, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    used_until_killed(store)
    kept = log.read_bytes()
    log.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"older than it was.*store\.db-wal") as refused:
            schema.connect(store)
        assert "store.db.mark" in str(refused.value.hint)
    for leftover in tmp_path.glob("store.db-*"):
        leftover.unlink()
    log.write_bytes(kept)
    with closing(schema.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_store_that_lost_its_log_opens_when_somebody_says_so(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    used_until_killed(store)
    for leftover in tmp_path.glob("store.db-*"):
        leftover.unlink()
    (tmp_path / "store.db.mark").unlink()
    with closing(schema.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_store_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    used_until_killed(store)
    for file in (store, *tmp_path.glob("store.db-*")):
        file.unlink()
    schema.connect(store).close()


def test_a_killed_workers_store_that_another_program_has_closed_is_whole(tmp_path: Path) -> None:
    """SQLite's own shell moves the log into the file and removes it: nothing is missing."""
    store = tmp_path / "store.db"
    used_until_killed(store)
    with closing(sqlite3.connect(store)) as shell:
        shell.execute("SELECT count(*) FROM runs").fetchall()
    assert not (tmp_path / "store.db-wal").exists()
    with closing(schema.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
