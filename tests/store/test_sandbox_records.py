"""What sandboxes did, in the store: written in order and in batches, read a page at a time."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.records.sandboxes import PROCESS_DIED, CommandRecord, SandboxRecord
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
from holdfast.store.sqlite.sandboxes import SqliteSandboxRecords
from holdfast.store.sqlite.schema import connect, migrations, statements
from holdfast.testing.store_conformance.sandboxes import BOX, STARTED


def write(path: Path, *operations: object) -> None:
    writer = SqliteSandboxWriter(path)
    for operation in operations:
        writer.put(operation)  # pyright: ignore[reportArgumentType]
    writer.close()


def add(record: SandboxRecord) -> object:
    return lambda c, owner: sandbox_rows.add_sandbox(c, owner, record)


def begin(record: CommandRecord) -> object:
    return lambda c, owner: sandbox_rows.add_command(c, owner, record)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM sandboxes WHERE run_id = ? ORDER BY created_at DESC, id DESC",
        "SELECT * FROM sandboxes WHERE created_at < ? ORDER BY created_at DESC, id DESC",
        "SELECT * FROM commands WHERE run_id = ? AND step_key = '0/1' ORDER BY started_at",
        "SELECT * FROM commands WHERE sandbox_id = ? ORDER BY started_at, id",
        "SELECT * FROM egress WHERE sandbox_id = ? ORDER BY id",
        "SELECT * FROM egress WHERE run_id = ? ORDER BY id",
    ],
)
def test_questions_are_answered_by_index(tmp_path: Path, sql: str) -> None:
    with closing(connect(tmp_path / "a.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",)).fetchall()
    assert all("USING INDEX" in row[3] for row in plan), plan


async def test_long_arguments_are_cut_and_odd_ones_kept_readable(tmp_path: Path) -> None:
    argv = ("python", "-c", "x" * 70_000, "\udcff", "last")
    write(tmp_path / "a.db", begin(replace(STARTED, argv=argv)))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT argv_cut FROM commands").fetchone() == (
            sum(map(len, argv)) - sandbox_rows.KEPT_ARGUMENTS,
        )
    records = SqliteSandboxRecords(tmp_path / "a.db")
    kept = await records.command("cmd_1")
    assert kept is not None
    assert kept.argv[:2] == ("python", "-c")
    assert kept.argv[2].endswith("x…")
    assert sum(map(len, kept.argv)) < sandbox_rows.KEPT_ARGUMENTS + len(argv)
    await records.close()


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from store.test_sandbox_records import BOX, STARTED
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
writer = SqliteSandboxWriter(Path(sys.argv[1]))
writer.put(lambda c, owner: sandbox_rows.add_sandbox(c, owner, BOX))
writer.put(lambda c, owner: sandbox_rows.add_command(c, owner, STARTED))
writer.flush()
print("ready", flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


async def test_what_a_killed_process_left_open_is_closed_by_whoever_looks(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(path), str(Path(__file__).parents[1])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin and child.stdout
    assert child.stdout.readline() == b"ready\n"
    records = SqliteSandboxRecords(path)
    alive = await records.get("sbx_1")
    assert alive is not None and alive.live
    child.stdin.close()
    assert child.wait() == -9
    child.stdout.close()
    found = await records.get("sbx_1")
    assert found is not None
    assert (found.live, found.stopped_because) == (False, PROCESS_DIED)
    command = await records.command("cmd_1")
    assert command is not None
    assert (command.ended, command.exit_code) == (PROCESS_DIED, None)
    assert list(path.with_name("a.db.owners").iterdir()) == []
    await records.close()


def test_what_could_not_be_written_is_written_when_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "folder" / "a.db"
    (tmp_path / "folder").write_text("in the way")
    writer = SqliteSandboxWriter(path)
    writer.put(lambda c, owner: sandbox_rows.add_sandbox(c, owner, BOX))
    with pytest.raises(StoreError):
        writer.flush()
    assert "trying again" in caplog.text
    os.remove(tmp_path / "folder")
    writer.flush()
    writer.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM sandboxes").fetchall() == [("sbx_1",)]


def test_closing_says_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("in the way")
    writer = SqliteSandboxWriter(tmp_path / "folder" / "a.db")
    writer.put(lambda c, owner: sandbox_rows.add_sandbox(c, owner, BOX))
    with pytest.raises(StoreError):
        writer.close()


def test_one_record_that_can_never_be_written_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(BOX, id="sbx_2")
    write(tmp_path / "a.db", add(BOX), add(BOX), add(other))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        rows = connection.execute("SELECT id FROM sandboxes ORDER BY id").fetchall()
    assert rows == [("sbx_1",), ("sbx_2",)]
    assert "could not be written" in caplog.text


async def test_what_was_recorded_before_use_was_counted_is_read_as_unknown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as old:
        for number, _, sql in migrations():
            if number < 7:
                for statement in statements(sql):
                    old.execute(statement)
        old.execute("PRAGMA user_version = 6")
        sandbox_rows.add_sandbox(old, "gone", BOX)
        sandbox_rows.add_command(old, "gone", STARTED)
        old.execute("UPDATE sandboxes SET stopped_at = 1, stopped_because = 'stopped'")
        old.execute("UPDATE commands SET ended_at = 1, ended = 'exited', exit_code = 0")
        old.commit()
    records = SqliteSandboxRecords(path)
    box, command = await records.get("sbx_1"), await records.command("cmd_1")
    await records.close()
    assert box is not None and command is not None
    assert (box.stopped_because, command.exit_code) == ("stopped", 0)
    assert (box.cpu_seconds, box.peak_memory, box.disk_used) == (None, None, None)
    assert (command.cpu_seconds, command.peak_memory) == (None, None)
