"""The floor: one SQLite transaction with synchronous=FULL per step, and nothing else."""

import sqlite3
import sys
import time

from measure import report


def main(folder: str, runs: int, steps: int) -> None:
    connection = sqlite3.connect(f"{folder}/raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (a TEXT, b INTEGER, c BLOB)")
    began = time.perf_counter()
    for number in range(runs * steps):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", ("step", number, b"x" * 150))
        connection.execute("COMMIT")
    report(time.perf_counter() - began, runs * steps)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
