"""Touches: what is not in the log is told, to those who asked, and moves nobody's place."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import start
from holdfast.ids import new_id
from holdfast.records.calls import CallEnd, CallStart
from holdfast.server import change_feed
from holdfast.store.sqlite import changes, ledger_rows, schema

from . import jobs
from .conftest import Frame, Server, until


@dataclass
class Records:
    """Model calls on record, written through a connection of its own."""

    path: Path
    connection: sqlite3.Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = schema.connect(self.path)

    def begin_call(self, run_id: str | None) -> str:
        call = CallStart(
            id=new_id("call"), model="a/b", format="holdfast", started_at=1.0, run_id=run_id
        )
        ledger_rows.insert(self.connection, call, "own_test", scopes=[], usd=0, tokens=0)
        return call.id

    def end_call(self, call_id: str) -> None:
        end, held = CallEnd("completed", finished_at=2.0), ledger_rows.Hold([], 0, 0)
        assert ledger_rows.finish(self.connection, call_id, end, held, 0)

    def mark(self) -> str:
        return changes.mark(self.connection)


@pytest.fixture
def records(server: Server) -> Any:
    made = Records(Path(server.engine.store.name))
    yield made
    made.connection.close()


@asynccontextmanager
async def following(server: Server, path: str) -> AsyncIterator[AsyncIterator[Frame]]:
    """The frames of a stream that is open and told from now on."""
    watches: set[change_feed.Watch] = server.app.state.feed._touches._watches
    before = len(watches)
    frames: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def read() -> None:
        async for frame in server.stream(path):
            frames.put_nowait(frame)
        frames.put_nowait(None)

    async def taken() -> AsyncIterator[Frame]:
        while (frame := await frames.get()) is not None:
            yield frame

    async def entered() -> bool:
        return "touch=" not in path or len(watches) > before

    async def left() -> bool:
        return len(watches) <= before

    reading = asyncio.get_running_loop().create_task(read())
    try:
        await until(entered, "the stream")
        yield taken()
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        await until(left, "its end")


def gate(name: str) -> asyncio.Event:
    return jobs.gates.setdefault(name, asyncio.Event())


async def test_a_call_that_begins_and_ends_within_a_step_is_told(server: Server) -> None:
    mid, after = gate("call"), gate("after call")
    run = await start(jobs.thoughtful, "call")

    async def calls(status: str) -> bool:
        shown = (await server.get(f"/api/runs/{run.id}")).json
        return [call["status"] for call in shown["calls"]] == [status]

    async def begun() -> bool:
        return await calls("started") and len(await run.events()) == 3

    await until(begun, "the call")
    end = await server.engine.store.log_end()
    path = f"/api/runs/{run.id}/events?after={end}&touch=calls"
    async with following(server, path) as frames:
        mid.set()
        told = await anext(frames)
        assert (told.event, told.id, told.json) == ("touch", str(end), {"kinds": ["calls"]})
        assert await calls("completed")
        assert await server.engine.store.log_end() == end
        after.set()
        rest = [frame async for frame in frames]
    assert [frame.event for frame in rest] == ["message", "message", "end"]
    assert await run.result() == "an answer"


async def test_a_quiet_run_is_not_touched_by_what_others_do(
    server: Server, records: Records
) -> None:
    gate("quiet"), gate("busy")
    quiet, busy = await start(jobs.held, "quiet"), await start(jobs.held, "busy")
    end = await server.engine.store.log_end()

    def path(id: str, *kinds: str) -> str:
        return f"/api/runs/{id}/events?after={end + 10}&" + "&".join(f"touch={k}" for k in kinds)

    async with (
        following(server, path(quiet.id, "calls", "approvals")) as of_quiet,
        following(server, path(busy.id, "calls")) as of_busy,
    ):
        for _ in range(3):
            records.begin_call(busy.id)
            told = await _first_touch(of_busy)
            assert told == ["calls"]
        # What the quiet one hears first is its own.
        _ask_for_approval(records, quiet.id)
        assert await _first_touch(of_quiet) == ["approvals"]


async def _first_touch(frames: AsyncIterator[Frame]) -> list[str]:
    async for frame in frames:
        if frame.event == "touch":
            return list(frame.json["kinds"])
    raise AssertionError("the stream ended")


def _ask_for_approval(records: Records, run_id: str) -> None:
    records.connection.execute(
        "INSERT INTO approvals (id, run_id, title, arguments, arguments_hash, asked_of,"
        " requested_at, expires_at, fallback) VALUES (?, ?, 'x', '{}', '', '', 1, 2, 'deny')",
        (new_id("apr"), run_id),
    )


async def test_who_did_not_ask_is_told_of_the_log_alone(server: Server, records: Records) -> None:
    gate("plain").clear()
    run = await start(jobs.held, "plain")
    path = f"/api/runs/{run.id}/events"
    async with following(server, path) as plain, following(server, f"{path}?touch=calls") as asked:
        call = records.begin_call(run.id)
        assert await _first_touch(asked) == ["calls"]
        records.end_call(call)
        assert await _first_touch(asked) == ["calls"]
        gate("plain").set()
        seen = [frame async for frame in plain]
    assert {frame.event for frame in seen} == {"message", "end"}
    assert [frame.json["seq"] for frame in seen[:-1]] == list(range(1, len(seen)))


async def test_what_changed_between_a_page_and_its_stream_is_told_at_once(
    server: Server, records: Records
) -> None:
    gate("between").clear()
    run = await start(jobs.held, "between")
    path = f"/api/runs/{run.id}/events?touch=calls&mark="
    known = records.mark()
    records.begin_call(run.id)
    async with following(server, path + known) as frames:
        assert await _first_touch(frames) == ["calls"]
    async with following(server, path + records.mark()) as frames:
        gate("between").set()
        assert "touch" not in {frame.event async for frame in frames}


async def test_touches_leave_the_place_to_resume_from_exact(
    server: Server, records: Records
) -> None:
    gate("resumed").clear()
    run = await start(jobs.counting, 40, "resumed")

    async def keep_busy() -> None:
        while True:
            records.end_call(records.begin_call(run.id))
            await asyncio.sleep(0.005)

    busy = asyncio.get_running_loop().create_task(keep_busy())
    places, touched, ended = [0], 0, False
    path = f"/api/runs/{run.id}/events?touch=calls"
    while not ended:
        last = {"last-event-id": str(places[-1])}
        async with aclosing(server.stream(path, **last)) as frames:  # type: ignore[type-var]
            since = 0
            async for frame in frames:
                ended = frame.event == "end"
                if frame.event == "touch":
                    touched += 1
                    assert int(frame.id) == places[-1], "a touch moves no place"
                    gate("resumed").set()
                if frame.event == "message":
                    places.append(int(frame.id))
                since += 1
                if since == 5:
                    break
    busy.cancel()
    await asyncio.wait({busy})
    assert places[1:] == [event.log for event in await run.events()]
    assert touched


async def test_the_end_is_told_when_what_the_run_did_is_on_record(
    server: Server, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "SETTLE_SECONDS", 60.0)
    gate("late").clear()
    run = await start(jobs.held, "late")
    call = records.begin_call(run.id)
    async with following(server, f"/api/runs/{run.id}/events?touch=calls") as frames:
        gate("late").set()
        async for frame in frames:
            if frame.event == "message" and frame.json["type"] == "run.completed":
                break
        looks = _count_looks(server, monkeypatch)

        async def looked_again() -> bool:
            return len(looks) > 5

        await until(looked_again, "some looks")
        end = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        assert not end.done()
        records.end_call(call)
        assert (await end).event == "end"


def _count_looks(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    looks: list[None] = []
    beat = server.app.state.feed._touches._detector
    has_changed = beat.has_changed

    def counted() -> bool:
        looks.append(None)
        return bool(has_changed())

    monkeypatch.setattr(beat, "has_changed", counted)
    return looks


async def test_nobody_looks_while_nobody_listens(server: Server) -> None:
    gate("alone").clear()
    run = await start(jobs.held, "alone")
    touches: change_feed.Touches = server.app.state.feed._touches
    assert touches._task is None
    async with following(server, f"/api/runs/{run.id}/events?touch=calls"):
        task = touches._task
        assert task is not None and not task.done()

    async def stopped() -> bool:
        return task.done()

    await until(stopped, "the end of looking")
    gate("alone").set()


async def test_a_kind_that_there_is_not_is_refused(server: Server) -> None:
    answer = await server.get("/api/events?touch=everything")
    assert (answer.status, answer.error["kind"]) == (400, "UsageError")
