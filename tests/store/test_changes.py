"""Change detection: every begin and end that is not in the log, of the right run, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.store.inspection import CHANGE_KINDS
from holdfast.store.sqlite.changes import KINDS, SqliteChangeDetector
from seeding import Seed


@pytest.fixture
def seed(tmp_path: Path) -> Iterator[Seed]:
    made = Seed(tmp_path / "store.db")
    made.connection.execute("COMMIT")
    yield made
    made.connection.close()
    made.let_go()


@pytest.fixture
def detector(seed: Seed) -> Iterator[SqliteChangeDetector]:
    made = SqliteChangeDetector(seed.path)
    made.look()
    yield made
    made.close()


def a_call(seed: Seed, run_id: str) -> None:
    seed.call("a/b", seed.now, 1.0, (1, 1), 0.1)
    seed.connection.execute("UPDATE calls SET run_id = ?", (run_id,))


def a_sandbox(seed: Seed, run_id: str) -> None:
    seed.sandbox(seed.now, None)
    seed.connection.execute("UPDATE sandboxes SET run_id = ?", (run_id,))


def a_command(seed: Seed, run_id: str) -> None:
    seed.connection.execute(
        "INSERT INTO commands (id, sandbox_id, owner, argv, argv_cut, cwd, run_id, started_at)"
        " VALUES ('cmd_1', 'sbx_1', 'own', '[]', 0, '/', ?, 1)",
        (run_id,),
    )


def an_attempt(seed: Seed, run_id: str) -> None:
    seed.connection.execute(
        "INSERT INTO egress (sandbox_id, run_id, at, host, allowed, reason, sent, received)"
        " VALUES ('sbx_1', ?, 1, 'h', 0, 'no', 0, 0)",
        (run_id,),
    )


def an_approval(seed: Seed, run_id: str) -> None:
    seed.connection.execute(
        "INSERT INTO approvals (id, run_id, title, arguments, arguments_hash, asked_of,"
        " requested_at, expires_at, fallback) VALUES ('apr_1', ?, 'x', '{}', '', '', 1, 2, 'deny')",
        (run_id,),
    )


BEGIN: dict[str, Callable[[Seed, str], None]] = {
    "calls": a_call,
    "sandboxes": a_sandbox,
    "commands": a_command,
    "egress": an_attempt,
    "approvals": an_approval,
}
END = {
    "sandboxes": "UPDATE sandboxes SET stopped_at = 2",
    "commands": "UPDATE commands SET ended_at = 2",
    "approvals": "UPDATE approvals SET status = 'approved'",
}


def test_only_what_another_connection_wrote_is_a_change(
    seed: Seed, detector: SqliteChangeDetector
) -> None:
    assert not detector.has_changed()
    seed.worker(1, "here", 1.0)
    assert detector.has_changed()
    detector.look()
    assert not detector.has_changed()


def test_rows_that_were_numbered_anew_hide_nothing(
    seed: Seed, detector: SqliteChangeDetector
) -> None:
    for _ in range(3):
        an_attempt(seed, "run_1")
    detector.look()
    seed.connection.execute("DELETE FROM egress")
    an_attempt(seed, "run_2")
    assert detector.look() == {"egress": {"run_2"}}


def test_a_look_at_a_store_that_rests_reads_no_table(
    seed: Seed, detector: SqliteChangeDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    assert isinstance(detector._connection, sqlite3.Connection)
    detector._connection.set_trace_callback(asked.append)
    for _ in range(3):
        detector.look()
    assert asked == ["PRAGMA data_version"] * 3
    seed.worker(1, "here", 1.0)
    detector.look()
    assert len(asked) > 4 + len(CHANGE_KINDS)


def test_the_kinds_that_are_told_are_those_that_are_looked_for() -> None:
    assert tuple(kind.name for kind in KINDS) == CHANGE_KINDS
