"""The live feed: exact resumption, many readers, slow readers, the end."""

from __future__ import annotations

import pytest

from holdfast import start

from . import jobs
from .conftest import Frame, Server


async def collected(server: Server, path: str, **headers: str) -> list[Frame]:
    return [frame async for frame in server.stream(path, **headers)]


async def test_a_runs_events_are_streamed_from_the_first_to_the_end(server: Server) -> None:
    run = await start(jobs.doubling, 3)
    frames = await collected(server, f"/api/runs/{run.id}/events")
    *events, end = frames
    journal = await run.events()
    assert [frame.json["seq"] for frame in events] == [event.seq for event in journal]
    assert [int(frame.id) for frame in events] == [event.log for event in journal]
    assert events[0].json["value"] == {"number": 3, "times": 1}
    assert (end.event, events[-1].json["type"]) == ("end", "run.completed")


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_lost_stream_goes_on_exactly_where_it_was(server: Server, by: str) -> None:
    run = await start(jobs.doubling, 1, 5)
    assert await run.result() == 32
    whole = [f.id for f in await collected(server, f"/api/runs/{run.id}/events")][:-1]
    for place in whole:
        if by == "header":
            rest = await collected(server, f"/api/runs/{run.id}/events", **{"last-event-id": place})
        else:
            rest = await collected(server, f"/api/runs/{run.id}/events?after={place}")
        assert [f.id for f in rest][:-1] == whole[whole.index(place) + 1 :]


async def test_events_of_all_runs_come_live_in_the_order_of_the_log(server: Server) -> None:
    stream = server.stream("/api/events?after=0&type=run.")
    runs = [await start(jobs.doubling, n) for n in range(5)]
    ended: set[str] = set()
    places: list[int] = []
    async for frame in stream:
        places.append(int(frame.id))
        assert frame.json["type"].startswith("run.")
        if frame.json["type"] == "run.completed":
            ended.add(frame.json["run_id"])
        if len(ended) == len(runs):
            break
    await stream.aclose()
    assert places == sorted(set(places))
    assert ended == {run.id for run in runs}
