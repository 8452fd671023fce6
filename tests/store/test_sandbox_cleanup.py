"""Old records of sandboxes are dropped with all they have, and nothing else is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.sandboxes import Dropped
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.sandbox_cleanup import prune_store
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
from holdfast.store.sqlite.schema import connect

NOW = datetime.now(UTC)
DAY = 86_400.0


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def add(path: Path, id: str, created: float, stopped: float | None) -> None:
    """A sandbox with two commands and an attempt, made and stopped so many days ago."""
    box = SandboxRecord(
        id, "namespace", "-", "python", days_ago(created), 60.0, 1.0, 1 << 30, 1 << 29, 9, (), None
    )
    with closing(connect(path)) as connection:
        sandbox_rows.add_sandbox(connection, "me", box)
        for number in (1, 2):
            begun = CommandRecord(f"{id}_c{number}", id, ("true",), "/", days_ago(created))
            sandbox_rows.add_command(connection, "me", begun)
            if stopped is not None:
                ended = replace(begun, ended_at=days_ago(stopped), ended="exited", exit_code=0)
                sandbox_rows.end_command(connection, ended)
        attempt = EgressRecord(id, days_ago(created), "a.test", 1, False, "no")
        sandbox_rows.add_egress(connection, attempt)
        if stopped is not None:
            over = replace(box, stopped_at=days_ago(stopped), stopped_because="stopped")
            sandbox_rows.stop_sandbox(connection, over)


def left(path: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            "sandboxes": [r[0] for r in connection.execute("SELECT id FROM sandboxes ORDER BY id")],
            "commands": [r[0] for r in connection.execute("SELECT id FROM commands ORDER BY id")],
            "egress": [
                r[0] for r in connection.execute("SELECT sandbox_id FROM egress ORDER BY 1")
            ],
        }


def test_what_stopped_long_ago_goes_with_its_commands_and_attempts(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add(path, "sbx_old", 40, 39)
    add(path, "sbx_new", 5, 5)
    add(path, "sbx_long", 40, 1)  # made long ago, but used until yesterday
    add(path, "sbx_live", 40, None)
    assert prune_store(path, 30 * DAY) == Dropped(1, 2, 1)
    assert left(path) == {
        "sandboxes": ["sbx_live", "sbx_long", "sbx_new"],
        "commands": [f"sbx_{n}_c{i}" for n in ("live", "long", "new") for i in (1, 2)],
        "egress": ["sbx_live", "sbx_long", "sbx_new"],
    }
    assert prune_store(path, 30 * DAY) == Dropped()


def test_any_number_is_dropped_a_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for number in range(7):
        add(path, f"sbx_{number}", 10 + number, 10)
    assert prune_store(path, DAY, most=3) == Dropped(7, 14, 7)
    assert left(path) == {"sandboxes": [], "commands": [], "egress": []}


def test_commands_and_attempts_whose_sandbox_is_not_on_record_go_by_their_own_age(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    add(path, "sbx_old", 40, 39)
    add(path, "sbx_new", 5, 5)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM sandboxes")
    assert prune_store(path, 30 * DAY) == Dropped(0, 2, 1)
    assert left(path)["commands"] == ["sbx_new_c1", "sbx_new_c2"]


def test_a_process_that_records_drops_what_is_too_old_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add(path, "sbx_old", 40, 39)
    add(path, "sbx_new", 5, 5)
    attempt = EgressRecord("sbx_new", NOW, "b.test", 1, False, "no")
    for keep, kept in ((None, ["sbx_new", "sbx_old"]), (30 * DAY, ["sbx_new"])):
        writer = SqliteSandboxWriter(path, keep=keep)
        writer.put(lambda c, _: sandbox_rows.add_egress(c, attempt))
        writer.close()
        assert left(path)["sandboxes"] == kept
    assert left(path)["egress"] == ["sbx_new"] * 3  # and what it had to write is written
