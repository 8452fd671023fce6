"""The live feed: exact resumption, many readers, slow readers, the end."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast import start
from holdfast.server import change_feed

from . import jobs
from .conftest import Frame, Server, running, until


async def collected(server: Server, path: str, **headers: str) -> list[Frame]:
    return [frame async for frame in server.stream(path, **headers)]


async def first(frames: AsyncIterator[Frame], count: int) -> list[Frame]:
    """So many frames, and then the connection is cut."""
    found: list[Frame] = []
    async with aclosing(frames) as stream:  # type: ignore[type-var]
        async for frame in stream:
            found.append(frame)
            if len(found) == count:
                break
    return found


async def places_to(frames: AsyncGenerator[bytes], end: int) -> list[int]:
    """The places of the events in what the feed gives, up to one."""
    places: list[int] = []
    async with aclosing(frames):
        async for piece in frames:
            places += [int(found) for found in re.findall(rb"^id: (\d+)\ndata", piece, re.M)]
            if places and places[-1] == end:
                break
    return places


async def test_a_runs_events_are_streamed_from_the_first_to_the_end(server: Server) -> None:
    run = await start(jobs.doubling, 3)
    *events, end = await collected(server, f"/api/runs/{run.id}/events")
    journal = await run.events()
    assert [frame.json["seq"] for frame in events] == [event.seq for event in journal]
    assert [int(frame.id) for frame in events] == [event.log for event in journal]
    assert events[0].json["value"] == {"number": 3, "times": 1}
    assert (end.event, events[-1].json["type"]) == ("end", "run.completed")


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_lost_stream_goes_on_exactly_where_it_was(server: Server, by: str) -> None:
    run = await start(jobs.doubling, 1, 5)
    assert await run.result() == 32
    path = f"/api/runs/{run.id}/events"
    whole = [frame.id for frame in await collected(server, path)][:-1]
    for place in whole:
        if by == "header":
            rest = await collected(server, path, **{"last-event-id": place})
        else:
            rest = await collected(server, f"{path}?after={place}")
        assert [frame.id for frame in rest][:-1] == whole[whole.index(place) + 1 :]


async def test_a_client_that_loses_its_connection_all_the_time_misses_nothing(
    server: Server,
) -> None:
    runs = [await start(jobs.doubling, n, 20) for n in range(10)]
    total = 10 * (2 + 1 + 2 * 20 + 1)
    places: list[int] = []
    while len(places) < total:
        last = {"last-event-id": str(places[-1] if places else 0)}
        some = min(7, total - len(places))
        frames = await first(server.stream("/api/events", **last), some)
        places += [int(frame.id) for frame in frames]
    for run in runs:
        await run.result()
    log = await server.engine.store.log(0, 10_000)
    assert places == [event.log for event in log]


async def test_events_of_all_runs_come_live_in_the_order_of_the_log(server: Server) -> None:
    runs = [await start(jobs.doubling, n) for n in range(5)]
    ended: set[str] = set()
    places: list[int] = []
    async with aclosing(server.stream("/api/events?after=0&type=run.")) as stream:
        async for frame in stream:
            places.append(int(frame.id))
            assert frame.json["type"].startswith("run.")
            if frame.json["type"] == "run.completed":
                ended.add(frame.json["run_id"])
            if len(ended) == len(runs):
                break
    assert places == sorted(set(places))
    assert ended == {run.id for run in runs}


async def test_without_a_place_the_log_is_followed_from_now_on(server: Server) -> None:
    await (await start(jobs.doubling, 1)).result()
    end = await server.engine.store.log_end()
    async with server.client.get(f"{server.url}/api/events") as reply:
        head = await reply.content.readuntil(b"id: %d\n" % end)
        assert b"data:" not in head
        run = await start(jobs.doubling, 2)
        line = await reply.content.readuntil(b"data: {")
        assert b"id: %d" % (end + 1) in line
    assert await run.result() == 4


async def test_a_hundred_readers_share_one_look_at_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    log = server.engine.store.log

    async def counted(*arguments: object, **named: object) -> object:
        nonlocal looks
        looks += 1
        return await log(*arguments, **named)  # type: ignore[arg-type]

    feed: change_feed.Feed = server.app.state.feed
    streams = [feed.follow() for _ in range(100)]
    for stream in streams:
        await anext(stream)
    monkeypatch.setattr(server.engine.store, "log", counted)
    runs = [await start(jobs.doubling, n, 5) for n in range(10)]
    for run in runs:
        await run.result()
    end = await server.engine.store.log_end()

    found = await asyncio.gather(*(places_to(stream, end) for stream in streams))
    assert all(places == list(range(1, end + 1)) for places in found)
    assert looks <= end + 10  # with a look for each reader it would be hundreds more


async def test_a_reader_that_can_not_keep_up_gets_everything_and_holds_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "KEPT", 10)
    feed: change_feed.Feed = server.app.state.feed
    slow = feed.follow(0)
    await anext(slow)
    await (await start(jobs.doubling, 1, 150)).result()
    end = await server.engine.store.log_end()
    assert end > change_feed.PAGE + 50
    quick = feed.follow(end - 1)
    await places_to(quick, end)  # the shared task has come to the end
    assert len(feed._kept) <= 10
    assert await places_to(slow, end) == list(range(1, end + 1))


async def test_a_client_that_takes_nothing_is_let_go(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", stall_seconds=0.2) as server:
        run = await start(jobs.large, 60_000)
        await run.result()
        for _ in range(200):
            await (await start(jobs.large, 60_000)).result()
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.settings.port, limit=1)
        writer.write(b"GET /api/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        feed: change_feed.Feed = server.app.state.feed

        async def entered() -> bool:
            return len(feed._readers) == 1

        async def left() -> bool:
            return len(feed._readers) == 0

        await until(entered, "the reader")
        await until(left, "its end")
        writer.close()


async def test_a_silent_stream_says_that_it_is_there(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "store.db", keep_alive_seconds=0.05) as server,
        server.client.get(f"{server.url}/api/events") as reply,
    ):
        await reply.content.readuntil(b": keep-alive\n\n")
        await reply.content.readuntil(b": keep-alive\n\n")


async def test_a_damaged_event_hides_no_other(server: Server) -> None:
    damaged, sound = await start(jobs.doubling, 1), await start(jobs.doubling, 2)
    await damaged.result()
    await sound.result()
    hit = (await damaged.events())[1].log
    connection = sqlite3.connect(server.engine.store.name)
    connection.execute("UPDATE events SET meta = '{\"a\": 1}' WHERE log = ?", (hit,))
    connection.commit()
    connection.close()
    end = await server.engine.store.log_end()
    found = await first(server.stream("/api/events?after=0"), end - 1)
    assert [int(frame.id) for frame in found] == [n for n in range(1, end + 1) if n != hit]


async def test_a_client_of_another_log_is_told_to_begin_anew(server: Server) -> None:
    await (await start(jobs.doubling, 1)).result()
    (frame,) = await first(server.stream("/api/events", **{"last-event-id": "99999"}), 1)
    assert frame.event == "reset"


async def test_more_streams_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", max_streams=1) as server:
        async with server.client.get(f"{server.url}/api/events") as reply:
            assert reply.status == 200
            answer = await server.get("/api/events")
            assert (answer.status, answer.error["kind"]) == (503, "ServerUnavailable")

        async def room() -> bool:
            async with server.client.get(f"{server.url}/api/events") as reply:
                return reply.status == 200

        await until(room, "room")


async def test_stopping_the_server_ends_its_streams(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db") as server:
        run = await start(jobs.approval, "lunch")
        urls = ["/api/events", f"/api/runs/{run.id}/events", f"/api/runs/{run.id}/stream"]
        replies = [await server.client.get(server.url + url) for url in urls]
        for reply in replies:
            await reply.content.readuntil(b"\n\n")
        server.stop.set_result("enough")
        for reply in replies:
            text = await reply.content.read()  # to its end
            assert b"event: end" not in text  # so that clients come back
            reply.close()


async def test_a_retried_runs_stream_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await start(jobs.shouting, "break")
    failed = await collected(server, f"/api/runs/{run.id}/events")
    assert failed[-2].json["type"] == "run.failed"

    async def mended(text: str) -> str:
        return text

    monkeypatch.setattr(jobs.fragile, "function", mended)
    await run.retry()
    whole = await collected(server, f"/api/runs/{run.id}/events")
    types = [frame.json["type"] for frame in whole[:-1]]
    assert types.index("run.failed") < types.index("run.retried") < types.index("run.completed")
    assert whole[-1].event == "end"
