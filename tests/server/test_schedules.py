"""Schedules over HTTP and on the inspector's page."""

from __future__ import annotations

from .conftest import Server

REPORT = {"workflow": "doubling", "timing": "0 7 * * MON-FRI Europe/Berlin", "input": {"number": 4}}


async def test_a_schedule_is_made_shown_changed_and_removed(server: Server) -> None:
    made = await server.ask("PUT", "/api/schedules/morning", json=REPORT)
    assert made.status == 200, made.text
    assert (made.json["timing"], made.json["overlap"]) == (REPORT["timing"], "skip")
    assert len(made.json["next"]) == 5
    again = await server.ask("PUT", "/api/schedules/morning", json=REPORT)
    assert again.json["revision"] == made.json["revision"]
    queued = {**REPORT, "overlap": "queue", "jitter": "90s"}
    changed = await server.ask("PUT", "/api/schedules/morning", json=queued)
    assert (changed.json["overlap"], changed.json["jitter"]) == ("queue", 90.0)
    [listed] = (await server.get("/api/schedules")).json["schedules"]
    assert listed["name"] == "morning"
    assert len((await server.get("/api/schedules/morning?next=9")).json["next"]) == 9
    assert (await server.ask("DELETE", "/api/schedules/morning")).status == 204
    assert (await server.get("/api/schedules/morning")).status == 404


async def test_a_schedule_is_paused_triggered_and_backfilled(server: Server) -> None:
    await server.ask(
        "PUT", "/api/schedules/hourly", json={**REPORT, "timing": "every 1h", "overlap": "queue"}
    )
    paused = await server.ask("POST", "/api/schedules/hourly/pause")
    assert (paused.json["paused"], paused.json["next"]) == (True, [])
    assert (await server.ask("POST", "/api/schedules/hourly/resume")).json["paused"] is False
    done = await server.ask("POST", "/api/schedules/hourly/trigger")
    assert done.status == 202
    run = (await server.get(f"/api/runs/{done.json['run']}")).json
    assert run["attributes"]["schedule"] == "hourly"
    filled = await server.ask(
        "POST", "/api/schedules/hourly/backfill", json={"start": 3600.0, "end": 3 * 3600.0}
    )
    assert (filled.status, filled.json) == (202, {"started": 0, "queued": 2, "existed": 0})


async def test_what_is_no_schedule_is_refused(server: Server) -> None:
    for change in (
        {"timing": "61 * * * *"},
        {"timing": "0 7 * * * Mars/Olympus"},
        {"overlap": "never"},
        {"catch_up": "all"},
        {"input": {"number": "many"}},
        {"surplus": 1},
    ):
        answer = await server.ask("PUT", "/api/schedules/bad", json={**REPORT, **change})
        assert answer.status == 400, (change, answer.text)
    assert (await server.ask("POST", "/api/schedules/none/trigger")).status == 404
    assert (await server.ask("POST", "/api/schedules/none/explode")).status in (400, 404)


async def test_the_page_shows_the_next_firings_and_asks_before_it_acts(server: Server) -> None:
    empty = await server.get("/schedules", headers={"accept": "text/html"})
    assert "No schedule yet" in empty.text
    await server.ask("PUT", "/api/schedules/a<b", json=REPORT)
    page = await server.get("/schedules", headers={"accept": "text/html"})
    assert "07:00:00 CE" in page.text
    assert "a&lt;b" in page.text
    assert len((await server.get("/schedules.json")).json["schedules"][0]["next"]) == 3
    asked = await server.get("/schedules/a%3Cb/do/pause", headers={"accept": "text/html"})
    assert "Pause this schedule?" in asked.text
    assert (await server.get("/schedules/a%3Cb/do/explode")).status == 404


async def test_a_held_run_is_listed_and_not_deleted(server: Server) -> None:
    body = {"input": {"number": 1}}
    run = (await server.ask("POST", "/api/workflows/doubling/runs", json=body)).json["id"]
    held = await server.ask("POST", f"/api/runs/{run}/hold", json={"reason": "case 7", "by": "ann"})
    assert held.status == 202
    [hold] = (await server.get("/api/holds")).json["holds"]
    assert (hold["run_id"], hold["reason"], hold["by"]) == (run, "case 7", "ann")
    assert (await server.ask("POST", f"/api/runs/{run}/delete")).status == 409
    assert (await server.ask("POST", f"/api/runs/{run}/release")).status == 202
    assert (await server.get("/api/holds")).json["holds"] == []
