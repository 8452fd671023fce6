"""Group commit: one guilty operation fails alone, whole; the others of its batch are safe."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Refused, StoreError
from holdfast.store.base import Change
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.database import Database, Transaction
from holdfast.store.sqlite.writer import LoopWriter

INSERT = "INSERT INTO attributes VALUES ('run', ?, '1')"


async def names_after(path: Path, *operations: Any) -> tuple[list[Any], set[str]]:
    """What each operation of one batch gave or raised, and the rows that are there after."""
    changes: list[Change] = []
    database = Database.open(path)
    writer = LoopWriter(database, changes.append)
    outcomes: list[asyncio.Future[Any]] = []
    for operation in operations:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(value: Any, error: Any, future: asyncio.Future[Any] = future) -> None:
            future.set_result(error or value)

        writer.submit(operation, done)
        outcomes.append(future)
    found = await asyncio.gather(*outcomes)
    await writer.close()
    database.close()
    connection = schema.connect(path)
    names = {row[0] for row in connection.execute("SELECT name FROM attributes")}
    connection.close()
    return found, names


def adds(name: str) -> Any:
    def operation(tx: Transaction) -> str:
        tx.execute(INSERT, (name,))
        return name

    return operation


def refuses(_tx: Transaction) -> None:
    raise Refused("not now")


def refuses_half_way(tx: Transaction) -> None:
    tx.execute(INSERT, ("half",))
    raise Refused("not any further")


def breaks(tx: Transaction) -> None:
    tx.execute(INSERT, ("broken",))
    tx.execute("SELECT * FROM no_such_table")


@pytest.mark.parametrize(
    ("guilty", "kind", "message"),
    [
        (refuses, Refused, "not now"),
        (refuses_half_way, Refused, "not any further"),
        (breaks, StoreError, "no such table"),
    ],
)
async def test_a_guilty_operation_fails_alone_and_leaves_nothing(
    tmp_path: Path, guilty: Any, kind: type[Exception], message: str
) -> None:
    found, names = await names_after(tmp_path / "store.db", adds("a"), guilty, adds("b"))
    assert found[0] == "a" and found[2] == "b"
    assert type(found[1]) is kind and message in str(found[1])
    assert names == {"a", "b"}
