"""A program that opens stores from many processes at the same moment; says what went wrong.

opening.py new FOLDER PROCESSES ROUNDS       a store that is not there yet
opening.py old FOLDER PROCESSES ROUNDS       a store whose schema is an old one
opening.py killed FOLDER PROCESSES           one that is made by a process that is killed at
                                             its first, second, third … statement
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.store.sqlite import schema

OLD = 4


def open_and_write(path: Path, number: int) -> None:
    """What every process does with a store: two connections, a write and a read."""
    with closing(schema.connect(path)) as writing, closing(schema.connect(path)) as reading:
        writing.execute("INSERT INTO attributes VALUES (?, 'n', ?)", (f"run_{number}", "1"))
        found = reading.execute("SELECT count(*) FROM attributes").fetchone()[0]
        assert found >= 1
        assert writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writing.execute("PRAGMA user_version").fetchone()[0] == schema.migrations()[-1][0]


def make_old(path: Path) -> None:
    """A store as an early version made it, not even with a log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, _name, sql in schema.migrations()[:OLD]:
            for statement in schema.statements(sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def together(processes: int, rounds: int, work: Callable[[int, int], None]) -> int:
    """`work(round, number)` in so many processes, each round begun by all at once."""
    barrier = multiprocessing.get_context("fork").Barrier(processes)
    children: list[int] = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            failed = 0
            for each in range(rounds):
                barrier.wait()
                try:
                    work(each, number)
                except BaseException:
                    traceback.print_exc()
                    failed = 1
            os._exit(failed)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def count_written(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(connection.execute("SELECT count(*) FROM attributes").fetchone()[0])


def make_watched(path: Path, at: int | None) -> list[str]:
    """Make a store in a process that dies at its statement number `at`; the statements it made."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        done = 0

        class Mortal(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                nonlocal done
                if done == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                done += 1
                os.write(writing, sql.split(maxsplit=1)[0].encode() + b"\n")
                return super().execute(sql, *parameters)

        connect = sqlite3.connect
        sqlite3.connect = lambda *a, **o: connect(*a, factory=Mortal, **o)
        schema.connect(path)
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        statements = told.read().split()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if at is None else -signal.SIGKILL), status
    return statements


def kill_makers(folder: Path, processes: int) -> None:
    """Kill at every statement that is not one of the many CREATEs, and at some of those."""
    statements = make_watched(folder / "whole.db", None)
    points = [at for at, word in enumerate(statements) if word != "CREATE" or at % 16 == 0]
    for at in points:
        path = folder / f"killed{at}.db"
        make_watched(path, at)
        failed = together(processes, 1, lambda _, number: open_and_write(path, number))
        assert not failed, f"killed at statement {at}, {statements[at]}"
        assert count_written(path) == processes
    print(len(points), "kills")


def main() -> None:
    mode, folder, processes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if mode == "killed":
        kill_makers(folder, processes)
        return
    rounds = int(sys.argv[4])
    paths = [folder / f"{mode}{each}.db" for each in range(rounds)]
    if mode == "old":
        for path in paths:
            make_old(path)
    failed = together(processes, rounds, lambda each, number: open_and_write(paths[each], number))
    assert not failed, f"{failed} of {processes} processes failed"
    assert [count_written(path) for path in paths] == [processes] * rounds
    print(rounds, "stores")


if __name__ == "__main__":
    main()
