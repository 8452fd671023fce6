"""Asking a run that goes on, over HTTP: what it has published, and updates."""

from __future__ import annotations

from holdfast.server import schemas

from .conftest import Server
from .test_api import ended, shaped, started


async def test_an_update_is_answered_and_can_be_asked_for_again(server: Server) -> None:
    run = await started(server, "till")
    place = f"/api/runs/{run}/updates"
    first = await server.post(place, {"name": "pay", "payload": 5, "id": "a/1"})
    body = shaped(first, schemas.UpdateShown)
    assert (body["status"], body["value"], body["run_id"]) == ("answered", 5, run)
    again = await server.post(place, {"name": "pay", "payload": 5, "id": "a/1"})
    assert again.json == body
    assert shaped(await server.get(f"{place}/a/1"), schemas.UpdateShown) == body
    other = await server.post(place, {"name": "pay", "payload": 6, "id": "a/1"})
    assert (other.status, other.error["kind"]) == (422, "UpdateMismatch")
    assert (await server.get(f"{place}/nothing")).status == 404
    rejected = shaped(await server.post(place, {"name": "pay"}), schemas.UpdateShown)
    assert rejected["status"] == "rejected"
    assert "that is no amount" in rejected["error"]


async def test_an_update_without_an_answer_is_pending_until_the_run_ends(server: Server) -> None:
    run = await started(server, "till")
    place = f"/api/runs/{run}/updates"
    body = {"name": "pay", "payload": 13, "id": "a", "wait": 0.01}
    assert shaped(await server.post(place, body), schemas.UpdateShown, 202)["value"] is None
    shaped(await server.get(f"{place}/a"), schemas.UpdateShown, 202)
    await server.post(place, {"name": "pay", "payload": 0, "wait": 0.0})
    await ended(server, run)
    found = shaped(await server.get(f"{place}/a?wait=5"), schemas.UpdateShown)
    assert found["status"] == "unanswered"
    assert "completed without answering" in found["error"]
    late = await server.post(place, {"name": "pay", "payload": 1})
    assert (late.status, late.error["kind"]) == (409, "UpdateUnanswered")


async def test_what_a_run_has_published_is_shown_by_the_api_and_the_inspector(
    server: Server,
) -> None:
    run = await started(server, "till")
    await server.post(f"/api/runs/{run}/updates", {"name": "pay", "payload": 5})
    detail = shaped(await server.get(f"/api/runs/{run}"), schemas.RunDetail)
    assert detail["published"]["total"]["value"] == {"sum": 5, "text": ""}
    page = await server.get(f"/runs/{run}")
    assert "Published" in page.text
    assert "update pay" in page.text.lower()
    await server.post(f"/api/runs/{run}/updates", {"name": "pay", "payload": 2000})
    listed = (await server.get(f"/api/runs/{run}/published")).json["total"]
    assert listed["value"] is None
    assert listed["bytes"] > 100_000
    whole = shaped(await server.get(listed["url"]), schemas.PublishedShown)
    assert whole["value"]["sum"] == 2005
    assert (await server.get(f"/runs/{run}")).status == 200
    assert (await server.get(f"/api/runs/{run}/published/mood")).status == 404


async def test_a_chain_is_shown_and_a_key_policy_is_obeyed(server: Server) -> None:
    answer = await server.post(
        "/api/workflows/hopping/runs", {"input": {"n": 2}}, headers={"idempotency-key": "k"}
    )
    first = (await ended(server, answer.json["id"], "continued"))["id"]
    shown = (await server.get(f"/api/runs/{first}")).json
    second = await ended(server, shown["continued_as"], "continued")
    last = await ended(server, second["continued_as"])
    assert (last["result"], last["key"]) == (0, "k")
    assert shown["continued_as"] in (await server.get(f"/runs/{first}")).text
    for policy, status in (("return", 200), ("refuse", 409), ("start_new", 202)):
        body = {"input": {"n": 0}, "key_policy": policy}
        again = await server.post(
            "/api/workflows/hopping/runs", body, headers={"idempotency-key": "k"}
        )
        assert again.status == status, again.text


async def test_many_runs_are_steered_by_a_filter(server: Server) -> None:
    runs = [await started(server, "till") for _ in range(2)]
    body = {"action": "terminate", "workflow": "till", "dry_run": True}
    counted = shaped(await server.post("/api/runs/bulk", body), schemas.SteeredRuns)
    assert (counted["matched"], counted["done"]) == (2, 0)
    done = (await server.post("/api/runs/bulk", {**body, "dry_run": False})).json
    assert (done["done"], done["refused"]) == (2, 0)
    for run in runs:
        await ended(server, run, "cancelled")
    assert (await server.post("/api/runs/bulk", {"action": "retry"})).status == 400


async def test_runs_that_have_ended_are_deleted(server: Server) -> None:
    runs = [await started(server, "till") for _ in range(3)]
    refused = await server.post(f"/api/runs/{runs[0]}/delete")
    assert refused.status == 409, refused.text
    await server.post("/api/runs/bulk", {"action": "terminate", "workflow": "till"})
    for run in runs:
        await ended(server, run, "cancelled")
    gone = shaped(await server.post(f"/api/runs/{runs[0]}/delete"), schemas.DeletedRuns)
    assert gone["deleted"] == [runs[0]]
    assert (await server.get(f"/api/runs/{runs[0]}")).status == 404
    assert (await server.post(f"/api/runs/{runs[0]}/delete")).status == 404
    body = {"action": "delete", "workflow": "till", "created_before": 1e9}
    assert (await server.post("/api/runs/bulk", body)).json["matched"] == 0
    body["created_before"] = 1e10
    assert (await server.post("/api/runs/bulk", body)).json["done"] == 2
    assert (await server.get(f"/api/runs/{runs[1]}")).status == 404
