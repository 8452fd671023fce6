"""A store that can't be used, or is damaged: a clear error, nothing lost, others unharmed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    RunHandle,
    Settings,
    StoreError,
    get_run,
    list_runs,
    open_engine,
    send_event,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.errors import CorruptEvent, SchemaTooNew, StoreFull, StoreReadOnly
from holdfast.runtime.app import current_engine
from holdfast.store.sqlite import events, schema
from waiting import LIMIT

QUICK = Settings(sweep_seconds=0.05, store_retry_seconds=0.05)


@step
async def plus_one(number: int) -> int:
    return number + 1


@workflow(name="bad-store-waits")
async def waits(number: int) -> str:
    number = await plus_one(await plus_one(number))
    answer = await wait_for_event("bad-store-go", timeout="1h")
    return f"{number} {answer.payload if answer else 'nothing'}"


@workflow(name="bad-store-parent")
async def parent() -> str:
    return await waits(1)


async def until(condition: Any) -> Any:
    """Look again whenever the store changes, until the condition holds."""
    engine = await current_engine()
    async with asyncio.timeout(LIMIT):
        async for _ in engine.watchers.changes():
            if found := await condition():
                return found
    raise AssertionError("closed")


async def is_waiting(run: RunHandle[Any]) -> bool:
    return any(event.type == "wait.created" for event in await run.events())


async def is_stuck(run: RunHandle[Any]) -> Any:
    record = await run.record()
    return record if record.status == "stuck" else None


async def waiting_runs(store: Path, count: int) -> list[str]:
    """Runs that have done two steps and wait for an event, in a store nobody has open."""
    async with open_engine(store):
        runs = [await start(waits, number) for number in range(count)]
        for run in runs:
            await until(lambda run=run: is_waiting(run))
        return [run.id for run in runs]


def change(store: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute(sql, parameters).rowcount == 1
        connection.commit()


# --- damaged rows ---

DAMAGE = {
    "type": "UPDATE events SET type = 'step.failed' WHERE run_id = ? AND seq = 3",
    "key": "UPDATE events SET key = '0/7' WHERE run_id = ? AND seq = 3",
    "at": "UPDATE events SET at = at + 0.0001 WHERE run_id = ? AND seq = 3",
    "at no number": "UPDATE events SET at = 'noon' WHERE run_id = ? AND seq = 3",
    "meta": "UPDATE events SET meta = '{\"a\": 1}' WHERE run_id = ? AND seq = 3",
    "meta no text": "UPDATE events SET meta = CAST(x'7bff7d' AS TEXT) WHERE run_id = ? AND seq = 3",
    "value": "UPDATE events SET value = CAST('7' AS BLOB) WHERE run_id = ? AND seq = 3",
    "value gone": "UPDATE events SET value = NULL WHERE run_id = ? AND seq = 3",
    "value a number": "UPDATE events SET value = 7 WHERE run_id = ? AND seq = 3",
    "blob": "UPDATE events SET value = NULL, blob = 'nowhere' WHERE run_id = ? AND seq = 3",
    "hash": "UPDATE events SET hash = x'00' WHERE run_id = ? AND seq = 3",
    "seq": "UPDATE events SET seq = 77 WHERE run_id = ? AND seq = 3",
    "run": "UPDATE events SET run_id = 'run_x' WHERE run_id = ? AND seq = 3",
    "first row": "UPDATE events SET meta = '{}' WHERE run_id = ? AND seq = 1",
    "row gone": "DELETE FROM events WHERE run_id = ? AND seq = 3",
    "last row gone": "DELETE FROM events WHERE run_id = ? AND seq = 6",
    "first row gone": "DELETE FROM events WHERE run_id = ? AND seq = 1",
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_a_damaged_row_puts_its_run_aside_by_name_and_others_go_on(
    tmp_path: Path, what: str
) -> None:
    store = tmp_path / "store.db"
    damaged, *others = await waiting_runs(store, 3)
    change(store, DAMAGE[what], damaged)
    async with open_engine(store, settings=QUICK):
        await send_event("bad-store-go", "yes")
        for number, run_id in enumerate(others, start=1):
            assert await (await get_run(run_id)).result() == f"{number + 2} yes"
        record = await until(lambda: _stuck(damaged))
        place = {"first row": 1, "first row gone": 1, "last row gone": 6, "seq": 77}.get(what, 3)
        assert record.error.startswith(f"CorruptEvent: event {place} of {damaged}")


async def _stuck(run_id: str) -> Any:
    return await is_stuck(await get_run(run_id))


async def test_every_flipped_bit_of_a_journal_row_is_noticed(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    [run_id] = await waiting_runs(store, 1)
    columns = ("run_id", "seq", "type", "key", "at", "meta", "value", "hash")
    flips = 0
    with closing(sqlite3.connect(store)) as connection:
        for seq in (1, 3):
            where = "WHERE run_id = ? AND seq = ?"
            for column in columns:
                sql = f"SELECT {column}, typeof({column}) FROM events {where}"
                value, kind = connection.execute(sql, (run_id, seq)).fetchone()
                for damaged in _flipped(value, kind):
                    sql = f"UPDATE OR IGNORE events SET {column} = {damaged} {where}"
                    if not connection.execute(sql, (run_id, seq)).rowcount:
                        continue  # two rows of one place: SQLite itself does not let it happen
                    with pytest.raises(CorruptEvent, match=rf"event \d+ of {run_id}"):
                        events.load(connection, run_id)
                    connection.rollback()
                    flips += 1
    assert flips > 1000


def _flipped(value: Any, kind: str) -> Iterator[str]:
    """The value with each of its bits flipped, as SQL."""
    if kind in ("text", "blob"):
        data = value.encode() if kind == "text" else value
        for place in range(len(data) * 8):
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            yield f"CAST(x'{changed.hex()}' AS {kind})"
    elif kind == "integer":
        yield from (str(value ^ (1 << bit)) for bit in range(8))
    else:
        yield from (repr(value * (1 + 2.0**-bit)) for bit in range(1, 52))


async def test_a_child_whose_result_is_damaged_stops_its_parent_alone(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with open_engine(store):
        run = await start(parent)
        [child] = await until(lambda: _children(run.id))
        await until(lambda: is_waiting_id(child))
    # The child ends while its parent is with no worker; then its last row is damaged.
    from holdfast.runtime.definitions import registered

    known = registered().pop("bad-store-parent")
    try:
        async with open_engine(store, settings=QUICK):
            await send_event("bad-store-go", "yes")
            assert await (await get_run(child)).result() == "3 yes"
            other = await start(waits, 5)
            await until(lambda: is_waiting(other))
    finally:
        registered()["bad-store-parent"] = known
    change(
        store,
        "UPDATE events SET value = x'00' WHERE run_id = ? AND type = ?",
        child,
        "run.completed",
    )
    async with open_engine(store, settings=QUICK):
        await send_event("bad-store-go", "later")
        assert await other.result() == "7 later", "mail of others comes through"
        record = await until(lambda: is_stuck(run))
        assert child in record.error and "does not fit its hash" in record.error
        with pytest.raises(CorruptEvent, match=child):
            await (await get_run(child)).result()


async def _children(run_id: str) -> list[str]:
    return [each.id for each in (await list_runs(parent=run_id)).runs]


async def is_waiting_id(run_id: str) -> bool:
    return await is_waiting(await get_run(run_id))


async def test_the_result_of_a_run_whose_last_row_is_gone_is_refused_by_name(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store.db"
    async with open_engine(store):
        run = await start(waits, 1)
        await until(lambda: is_waiting(run))
        await send_event("bad-store-go", "yes")
        await run.result()
    change(store, "DELETE FROM events WHERE run_id = ? AND type = ?", run.id, "run.completed")
    async with open_engine(store):
        with pytest.raises(CorruptEvent, match=f"the last event of {run.id} is missing"):
            await run.result()


# --- files that are no store, or not for us ---


async def test_a_newer_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    await waiting_runs(store, 1)
    newest = schema.migrations()[-1][0]
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 7}")
    before = store.read_bytes()
    with pytest.raises(SchemaTooNew, match=rf"schema {newest + 7}; .* up to {newest}"):
        async with open_engine(store):
            pass
    assert store.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "notes.txt"
    store.write_text("buy milk\n" * 1000)
    with pytest.raises(StoreError, match=r"notes\.txt is no Holdfast store"):
        async with open_engine(store):
            pass
    assert store.read_text().startswith("buy milk")


async def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "theirs.db"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("CREATE TABLE runs (distance REAL)")
        connection.commit()
    with pytest.raises(StoreError, match=r"theirs\.db is no Holdfast store"):
        async with open_engine(store):
            pass
    with closing(sqlite3.connect(store)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    assert tables == [("runs",)]


async def test_a_folder_in_the_stores_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=str(tmp_path)):
        async with open_engine(tmp_path):
            pass


AS_SOMEBODY = """
import asyncio, sys
from holdfast import open_engine, start, workflow
from holdfast.errors import HoldfastError

@workflow
async def nothing() -> None: ...

async def main():
    try:
        async with open_engine(sys.argv[1], worker=False):
            await start(nothing)
    except HoldfastError as error:
        print(type(error).__name__, error.message)

asyncio.run(main())
"""


def as_unprivileged(store: Path) -> str:
    """What a user without rights is told when it starts a run on the store."""
    command = [sys.executable, "-c", AS_SOMEBODY, str(store)]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root may write anything, and there is no setpriv to become somebody else")
        command = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        check = subprocess.run([*command[:-1], "/nonexistent/x"], capture_output=True, check=False)
        if b"can't be" not in check.stdout:
            pytest.skip("this Python can't be run by somebody else")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into (pytest's own are closed to them)."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_read_only_file_is_named(open_folder: Path) -> None:
    store = open_folder / "store.db"
    asyncio.run(waiting_runs(store, 1))
    store.chmod(0o444)
    assert as_unprivileged(store) == f"StoreReadOnly {store} can't be written"


def test_a_read_only_folder_is_named(open_folder: Path) -> None:
    store = open_folder / "sub" / "store.db"
    assert as_unprivileged(store) == f"StoreReadOnly {store} can't be written"
    store.parent.mkdir(mode=0o755)
    assert as_unprivileged(store) == f"StoreReadOnly {store} can't be written"


def test_a_read_only_error_has_its_class() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorname = "SQLITE_READONLY"
    assert isinstance(schema.as_store_error(error, "store"), StoreReadOnly)


# --- a full disk ---


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root and mount, to make a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"can't mount a small disk here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use up all the space that is left."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


may_go_on = asyncio.Event()


@step
async def large(number: int) -> str:
    if number:  # the first is recorded, and the rest come when the test has filled the disk
        await may_go_on.wait()
    return f"{number}" * 20_000


@workflow(name="bad-store-large")
async def large_results(count: int) -> int:
    total = 0
    for number in range(count):
        total += len(await large(number))
    return total


async def test_a_full_disk_refuses_starts_and_keeps_what_runs_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path, 2000) as folder:
        store = folder / "store.db"
        async with open_engine(store, settings=QUICK) as engine:
            first = await start(waits, 1)
            await until(lambda: is_waiting(first))
            ballast = fill(folder)
            with pytest.raises(StoreFull, match=r"no space left for .*store\.db"):
                for number in range(200):
                    await start(waits.options(delay="1h"), number)
            before = len((await list_runs(limit=1000)).runs)
            with pytest.raises(StoreFull):
                await send_event("bad-store-go", "x" * 20_000)
            # Room for the event, and for a few results, but not for all of them.
            ballast.unlink()
            await send_event("bad-store-go", "yes")
            assert await first.result() == "3 yes"
            may_go_on.clear()
            run = await start(large_results, 9)
            await until(lambda: _some_steps(run))
            ballast = fill(folder)
            caplog.clear()
            may_go_on.set()
            async with asyncio.timeout(LIMIT):
                while "trying again" not in caplog.text:
                    await asyncio.sleep(0.01)
            assert engine.runs, "the run is still in hand"
            ballast.unlink()
            assert await run.result() == 9 * 20_000
            assert [s.attempts for s in await run.steps()] == [1] * 9
            completed = [e.key for e in await run.events() if e.type == "step.completed"]
            assert completed == [f"0/{place}" for place in range(1, 10)]
            assert len((await list_runs(limit=1000)).runs) == before + 1


async def _some_steps(run: RunHandle[Any]) -> bool:
    return any(event.type == "step.completed" for event in await run.events())


async def test_a_run_that_leaves_memory_while_the_disk_is_full_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(sweep_seconds=0.05, store_retry_seconds=0.05, idle_seconds=0.05)
    async with open_engine(tmp_path / "store.db", settings=settings) as engine:
        release, refusals = engine.store.release, []

        async def full_at_first(*arguments: Any) -> bool:
            if len(refusals) < 3:
                refusals.append(arguments)
                raise StoreFull("no space left")
            return await release(*arguments)

        monkeypatch.setattr(engine.store, "release", full_at_first)
        run = await start(waits, 1)

        async def has_left() -> bool:
            return (await run.record()).status == "waiting"

        await until(has_left)
        await send_event("bad-store-go", "yes")
        assert await run.result() == "3 yes"
        assert len(refusals) == 3


# --- older schemas, copies ---


async def test_an_older_schema_is_brought_forward_and_its_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.db"
    [run_id] = await waiting_runs(store, 1)
    newest = schema.migrations()[-1][0]
    later = [
        *schema.migrations(),
        (newest + 1, "later.sql", "CREATE TABLE notes (run_id TEXT);\n-- a comment\n"),
        (newest + 2, "latest.sql", "ALTER TABLE notes ADD COLUMN text TEXT;\n"),
    ]
    monkeypatch.setattr(schema, "migrations", lambda: later)
    async with open_engine(store):
        await send_event("bad-store-go", "yes")
        assert await (await get_run(run_id)).result() == "2 yes"
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (newest + 2,)
        assert connection.execute("SELECT run_id, text FROM notes").fetchall() == []


async def test_a_migration_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.db"
    await waiting_runs(store, 1)
    known = schema.migrations()
    newest = known[-1][0]
    broken = (newest + 1, "broken.sql", "CREATE TABLE notes (a);\nCREATE TABLE runs (a);\n")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: [*known, broken])
        with pytest.raises(StoreError, match="table runs already exists"):
            async with open_engine(store):
                pass
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (newest,)
        sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'"
        assert connection.execute(sql).fetchone() == (0,)


async def test_a_backup_made_while_runs_go_on_opens_and_goes_on_by_itself(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with open_engine(store, settings=QUICK) as engine:
        runs = [await start(waits, number) for number in range(20)]
        await until(lambda: _some_steps(runs[0]))
        await engine.store.backup(copy)
        await send_event("bad-store-go", "yes")
        for number, run in enumerate(runs):
            assert await run.result() == f"{number + 2} yes"
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for run in runs:
            events.load(connection, run.id)
        # The copy's runs belong to the worker of the original, as in a restore after a disaster.
        connection.execute("UPDATE workers SET boot = 'an earlier one'")
        connection.commit()
    async with open_engine(copy, settings=QUICK):
        await send_event("bad-store-go", "again")
        for number, run in enumerate(runs):
            assert await (await get_run(run.id)).result() == f"{number + 2} again"


async def test_a_store_and_its_backup_are_for_their_owner_alone(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with open_engine(store, settings=QUICK) as engine:
        await start(waits, 1)
        await engine.store.backup(copy)
        files = [store, copy, store.with_name("store.db-wal"), store.with_name("store.db-shm")]
        assert [oct(file.stat().st_mode & 0o777) for file in files] == ["0o600"] * 4
    store.chmod(0o640)
    async with open_engine(store, settings=QUICK):
        assert store.with_name("store.db-wal").stat().st_mode & 0o777 == 0o640
