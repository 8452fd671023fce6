"""The JSON API, as its clients use it: what is asked, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import start
from holdfast.loop import approval_token
from holdfast.server import requests as bodies
from holdfast.server import schemas

from . import jobs
from .conftest import TOKEN, Answer, Server, until


def shaped(answer: Answer, model: type[BaseModel], status: int = 200) -> Any:
    """The answer's JSON, which must be exactly what the OpenAPI document says it is."""
    assert answer.status == status, answer.text
    model.model_validate_json(answer.text)
    return answer.json


async def started(server: Server, workflow: str, **input: Any) -> str:
    answer = await server.post(f"/api/workflows/{workflow}/runs", {"input": input})
    return shaped(answer, schemas.Started, 202)["id"]


async def ended(server: Server, run_id: str, status: str = "completed") -> Any:
    async def look() -> Any:
        answer = await server.get(f"/api/runs/{run_id}")
        assert answer.status == 200, answer.text
        return answer.json if answer.json["status"] == status else None

    return await until(look, f"{run_id} {status}")


# --- starting ---


async def test_a_run_is_started_at_once_and_goes_on_by_itself(server: Server) -> None:
    answer = await server.post("/api/workflows/doubling/runs", {"input": {"number": 21}})
    body = shaped(answer, schemas.Started, 202)
    assert answer.headers["location"] == body["urls"]["self"] == f"/api/runs/{body['id']}"
    run = await ended(server, body["id"])
    assert run["result"] == 42
    shaped(await server.get(body["urls"]["self"]), schemas.RunDetail)


async def test_attributes_a_delay_and_a_time_limit_can_be_given(server: Server) -> None:
    body = {
        "input": {"number": 1},
        "attributes": {"team": "red", "n": 7},
        "delay": "1h",
        "timeout": "30m",
    }
    answer = await server.post("/api/workflows/doubling/runs", body)
    run = (await server.get(answer.headers["location"])).json
    assert run["attributes"] == {"team": "red", "n": 7}
    assert run["due_at"] - run["created_at"] == pytest.approx(3600)
    assert (run["timeout"], run["deadline"]) == (1800.0, run["due_at"] + 1800)
    assert "has until" in (await server.get(f"/runs/{run['id']}")).text


async def test_the_same_key_gives_the_same_run(server: Server) -> None:
    body, key = {"input": {"number": 3}}, {"idempotency-key": "order 17"}
    first = await server.post("/api/workflows/doubling/runs", body, headers=key)
    again = await server.post("/api/workflows/doubling/runs", body, headers=key)
    spelt_out = {"input": {"times": 1, "number": 3}}
    third = await server.post("/api/workflows/doubling/runs", spelt_out, headers=key)
    assert [a.status for a in (first, again, third)] == [202, 200, 200]
    assert first.json["id"] == again.json["id"] == third.json["id"]
    assert shaped(again, schemas.Started)["existed"]
    assert (await server.get(first.json["urls"]["self"])).json["key"] == "order 17"


async def test_of_many_requests_with_one_key_one_starts_the_run(server: Server) -> None:
    body, key = {"input": {"number": 3}}, {"idempotency-key": "k"}
    answers = await asyncio.gather(
        *(server.post("/api/workflows/doubling/runs", body, headers=key) for _ in range(20))
    )
    assert len({answer.json["id"] for answer in answers}) == 1
    assert sorted(answer.status for answer in answers) == [200] * 19 + [202]


async def test_the_same_key_with_another_body_is_refused(server: Server) -> None:
    key = {"idempotency-key": "k"}
    await server.post("/api/workflows/doubling/runs", {"input": {"number": 3}}, headers=key)
    answer = await server.post(
        "/api/workflows/doubling/runs", {"input": {"number": 4}}, headers=key
    )
    assert (answer.status, answer.error["kind"]) == (422, "RunMismatch")
    other = await server.post("/api/workflows/shouting/runs", {"input": {"text": "a"}}, headers=key)
    assert other.status == 202  # a key is a workflow's own


async def test_fifty_runs_submitted_at_once_all_finish(server: Server) -> None:
    ids = await asyncio.gather(*(started(server, "doubling", number=n, times=3) for n in range(50)))
    runs = await asyncio.gather(*(ended(server, run_id) for run_id in ids))
    assert [run["result"] for run in runs] == [8 * n for n in range(50)]


async def test_workflows_are_listed_with_what_they_take(server: Server) -> None:
    listed = shaped(await server.get("/api/workflows"), schemas.WorkflowList)["workflows"]
    found = {workflow["name"]: workflow for workflow in listed}
    assert found["doubling"]["input"]["required"] == ["number"]
    assert found["doubling"]["input"]["properties"]["times"]["type"] == "integer"
    assert found["evaluate_code"]["description"].startswith("Write a program")


# --- looking ---


async def test_runs_are_listed_by_every_filter(server: Server) -> None:
    ids = [await started(server, "doubling", number=n) for n in range(3)]
    bad = await started(server, "shouting", text="break")
    for run_id in ids:
        await ended(server, run_id)
    await ended(server, bad, "failed")

    async def listed(query: str) -> list[str]:
        page = shaped(await server.get(f"/api/runs?{query}"), schemas.RunPage)
        return [run["id"] for run in page["runs"]]

    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert await listed("") == [bad, *reversed(ids)]
    assert await listed("workflow=shouting") == [bad]
    assert await listed("status=failed") == [bad]
    assert await listed("status=failed&status=completed") == [bad, *reversed(ids)]
    assert await listed("attribute=number%3D1") == [ids[1]]
    assert await listed("attribute=kind%3Ddoubling&attribute=number%3D2") == [ids[2]]
    assert await listed(f"created_after={soon}") == []
    assert await listed(f"created_before={soon}") == [bad, *reversed(ids)]
    assert await listed("q=it+broke") == [bad]
    assert await listed("q=number%3D2") == [ids[2]]
    assert await listed(f"q={ids[0][-10:].lower()}") == [ids[0]]
    assert await listed("q=%25") == []
    assert await listed("q=_o_") == []


async def test_a_list_is_read_page_by_page(server: Server) -> None:
    ids = [await started(server, "doubling", number=n) for n in range(5)]
    found: list[str] = []
    cursor = ""
    while True:
        page = (await server.get(f"/api/runs?limit=2{cursor}")).json
        found += [run["id"] for run in page["runs"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert found == ids[::-1]


async def test_a_failed_run_says_why_and_where(server: Server) -> None:
    run = await ended(server, await started(server, "shouting", text="break"), "failed")
    assert run["failure"]["type"] == "FatalError"
    assert run["failure"]["message"] == "it broke"
    assert run["failure"]["hint"] == "don't say break"
    (step,) = run["steps"]
    assert (step["status"], step["error"]["message"]) == ("failed", "it broke")


async def test_a_large_payload_is_named_and_can_be_had(server: Server) -> None:
    run = await ended(server, await started(server, "large", size=200_000))
    assert run["result"] is None and run["cut"]["result"]["bytes"] == 200_002
    (step,) = run["steps"]
    for cut in (run["cut"]["result"], step["cut"]["output"]):
        event = shaped(await server.get(cut["url"]), schemas.EventShown)
        assert event["value"] == "x" * 200_000
    shaped(await server.get(f"/api/runs/{run['id']}"), schemas.RunDetail)


async def test_events_as_json_come_in_pages(server: Server) -> None:
    run = await start(jobs.doubling, 1, 5)
    await run.result()
    found: list[int] = []
    after = 0
    while True:
        url = f"/api/runs/{run.id}/events?limit=3&after={after}"
        page = shaped(
            await server.get(url, headers={"accept": "application/json"}), schemas.EventPage
        )
        if not page["events"]:
            break
        assert len(page["events"]) <= 3
        found += [event["seq"] for event in page["events"]]
        after = page["after"]
    assert found == [event.seq for event in await run.events()]
    everything = await server.get("/api/events", headers={"accept": "application/json"})
    assert len(shaped(everything, schemas.EventPage)["events"]) == len(found)


async def test_a_stream_is_followed_live_and_goes_on_by_index(server: Server) -> None:
    jobs.gates["count"] = asyncio.Event()
    run = await start(jobs.counting, 10, gate="count")
    seen: list[Any] = []
    async for frame in server.stream(f"/api/runs/{run.id}/stream"):
        if frame.event == "end":
            break
        seen.append(frame.json["data"]["number"])
        if len(seen) == 4:
            jobs.gates["count"].set()
    assert seen == list(range(10))
    rest = [f async for f in server.stream(f"/api/runs/{run.id}/stream", **{"last-event-id": "6"})]
    assert [f.json["index"] for f in rest[:-1]] == [7, 8, 9]
    url = f"/api/runs/{run.id}/stream?start=8&limit=1"
    page = await server.get(url, headers={"accept": "application/json"})
    body = shaped(page, schemas.ChunkPage)
    assert (body["next"], body["complete"]) == (9, False)
    assert body["chunks"][0]["data"] == {"number": 8}


async def test_health_says_who_works(server: Server) -> None:
    assert shaped(await server.get("/healthz"), schemas.Alive) == {"ok": True}
    body = shaped(await server.get("/api/health"), schemas.Health)
    assert body["works"] and body["store"] == server.engine.store.name


async def test_models_that_can_be_used_are_listed(server: Server) -> None:
    usable = shaped(await server.get("/api/models"), schemas.ModelList)["models"]
    assert all(model["why_not"] is None for model in usable)
    assert "scripted/echo" in {model["name"] for model in usable}
    everything = (await server.get("/api/models?all=true")).json["models"]
    assert len(everything) > len(usable)


# --- steering ---


async def test_a_run_is_cancelled(server: Server) -> None:
    jobs.gates["cancel"] = asyncio.Event()
    run_id = await started(server, "held", name="cancel")
    shaped(await server.post(f"/api/runs/{run_id}/cancel"), schemas.RunShown, 202)
    await ended(server, run_id, "cancelled")


async def test_a_run_is_terminated(server: Server) -> None:
    jobs.gates["terminate"] = asyncio.Event()
    run_id = await started(server, "held", name="terminate")
    shaped(await server.post(f"/api/runs/{run_id}/terminate"), schemas.RunShown, 202)
    await ended(server, run_id, "cancelled")
    shown = await server.get(f"/api/runs/{run_id}")
    assert shown.json["error"].startswith("Terminated")


async def test_a_run_is_paused_and_resumed(server: Server) -> None:
    run_id = await started(server, "approval", what="lunch")
    await ended(server, run_id, "running")
    assert (await server.post(f"/api/runs/{run_id}/pause", {})).status == 202
    await ended(server, run_id, "paused")
    assert (await server.post(f"/api/runs/{run_id}/resume")).status == 202
    again = await server.post(f"/api/runs/{run_id}/resume")
    assert (again.status, again.error["kind"]) == (409, "Refused")


async def test_a_failed_run_is_retried_from_where_it_failed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await started(server, "shouting", text="break")
    await ended(server, run_id, "failed")
    monkeypatch.setattr(jobs.fragile, "function", _mended)
    shaped(await server.post(f"/api/runs/{run_id}/retry"), schemas.RunShown, 202)
    assert (await ended(server, run_id))["result"] == "mended break"


async def _mended(text: str) -> str:
    return f"mended {text}"


async def test_a_run_is_forked_from_a_step_with_other_input(server: Server) -> None:
    run = await ended(server, await started(server, "doubling", number=1, times=2))
    second = run["steps"][1]["key"]
    body = {"step": second, "input": {"number": 50}}
    answer = await server.post(f"/api/runs/{run['id']}/fork", body)
    forked = shaped(answer, schemas.Started, 202)["id"]
    assert (await ended(server, forked))["result"] == 100
    body = {"step": second, "result": 7}
    forked = (await server.post(f"/api/runs/{run['id']}/fork", body)).json["id"]
    assert (await ended(server, forked))["result"] == 7
    forked = (await server.post(f"/api/runs/{run['id']}/fork", {"input": {"number": 5}})).json["id"]
    assert (await ended(server, forked))["result"] == 20


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"step": "9/9"}, 404, "there is no step"),
        ({"input": {"nuber": 1}}, 400, "no argument 'nuber'"),
        ({"input": {"number": "x"}}, 400, "valid integer"),
        ({"result": 1}, 400, "needs the step"),
        ({"step": "0/2", "input": {}, "result": 1}, 400, "not both"),
        ({"from": "0/2"}, 400, "body.from"),
    ],
)
async def test_a_fork_that_makes_no_sense_is_refused(
    server: Server, body: dict[str, Any], status: int, words: str
) -> None:
    run = await ended(server, await started(server, "doubling", number=1))
    answer = await server.post(f"/api/runs/{run['id']}/fork", body)
    assert answer.status == status
    assert words in answer.error["message"]


# --- events ---


async def test_an_event_reaches_the_run_that_waits_for_it(server: Server) -> None:
    run_id = await started(server, "approval", what="lunch")
    body = {"name": "approval", "payload": {"what": "lunch", "by": "Ada"}, "id": "a-1"}
    sent = shaped(await server.post("/api/events", body), schemas.EventSent, 202)
    assert not sent["repeated"]
    assert (await server.post("/api/events", body)).json["repeated"]
    assert "Ada" in (await ended(server, run_id))["result"]


async def test_what_a_run_waits_for_is_approved_once(server: Server) -> None:
    run_id = await started(server, "approval", what="lunch")
    nobody = await server.post(f"/api/runs/{run_id}/answer", {"step": "0/9"})
    assert nobody.status == 409

    async def approved() -> Any:
        found = await server.post(f"/api/runs/{run_id}/answer", {"comment": "enjoy"})
        return found if found.status == 202 else None

    sent = shaped(await until(approved, "the wait"), schemas.EventSent, 202)
    assert sent["name"] == "approval"
    result = (await ended(server, run_id))["result"]
    assert result == f"lunch: { ({'what': 'lunch', 'approved': True, 'comment': 'enjoy'}) }"
    late = await server.post(f"/api/runs/{run_id}/answer", {"approved": False})
    assert (late.status, late.error["kind"]) == (409, "Refused")


async def asked(server: Server, order: str) -> tuple[str, Any]:
    """A run that asks people, and what it asks them."""
    run_id = await started(server, "asking", order=order)

    async def look() -> Any:
        page = await server.get(f"/api/approvals?run={run_id}")
        return shaped(page, schemas.ApprovalPage)["approvals"]

    return run_id, (await until(look, "the approval"))[0]


async def test_an_approval_is_decided_once_about_these_arguments(server: Server) -> None:
    run_id, found = await asked(server, "A-1")
    assert (found["title"], found["arguments"]) == ("Refund", {"order": "A-1"})
    url = f"/api/approvals/{found['id']}"
    body = {"approved": True, "by": "Ann", "note": "fine"}
    wrong = await server.post(url, {**body, "arguments_hash": "0" * 64})
    assert (wrong.status, wrong.error["kind"]) == (403, "ApprovalRefused")
    nameless = await server.post(url, {**body, "by": " "})
    assert nameless.status == 400 and "body.by" in nameless.error["message"]
    by_event = await server.post(f"/api/runs/{run_id}/answer", {})
    assert by_event.status == 409 and "/api/approvals" in by_event.error["hint"]
    right = await server.post(url, {**body, "arguments_hash": found["arguments_hash"]})
    assert shaped(right, schemas.ApprovalShown)["how"] == "http"
    assert (await ended(server, run_id))["result"] == "approved by Ann: fine"
    again = await server.post(url, {**body, "approved": False})
    assert (again.status, again.error["kind"]) == (403, "ApprovalRefused")
    shown = shaped(await server.get(url), schemas.ApprovalShown)
    assert (shown["status"], shown["decided_by"]) == ("approved", "Ann")
    assert (await server.get("/api/approvals")).json["approvals"] == []
    assert len((await server.get("/api/approvals?status=any")).json["approvals"]) == 1
    assert (await server.get("/api/approvals/apr_nothing")).status == 404


async def test_who_was_sent_an_approvals_token_needs_no_other(guarded: Server) -> None:
    run_id, found = await asked(guarded, "A-1")
    _, other = await asked(guarded, "A-2")
    token = await approval_token(found["id"])
    guarded.headers = {"host": "hooks.example"}
    form = {"approved": "false", "by": "Bob"}
    for place in (f"{other['id']}/{token}", f"{found['id']}/{token}x", f"{found['id']}/%C3%BC"):
        refused = await guarded.ask("POST", f"/hooks/{place}", data=form)
        assert (refused.status, refused.error["kind"]) == (403, "ApprovalRefused")
    for bad in ({}, {"approved": "perhaps", "by": "Bob"}, {**form, "extra": "1"}):
        refused = await guarded.ask("POST", f"/hooks/{found['id']}/{token}", data=bad)
        assert refused.status == 400 and "body" in refused.error["message"]
    right = await guarded.ask("POST", f"/hooks/{found['id']}/{token}", data=form)
    assert shaped(right, schemas.ApprovalShown)["how"] == "webhook"
    guarded.headers = {"authorization": f"Bearer {TOKEN}"}
    assert (await ended(guarded, run_id))["result"] == "rejected by Bob: "


async def hook_of(server: Server, run_id: str) -> str:
    async def look() -> Any:
        url = f"/api/runs/{run_id}/stream?name=hooks"
        page = await server.get(url, headers={"accept": "application/json"})
        return [chunk["data"] for chunk in page.json["chunks"]]

    return (await until(look, "the webhook"))[0]


@pytest.mark.parametrize(
    ("kind", "body", "payload"),
    [
        ("application/json", '{"a": [1, "ü"]}', {"a": [1, "ü"]}),
        ("application/vnd.x+json; charset=utf-8", "7", 7),
        ("application/x-www-form-urlencoded", "a=1&b=%C3%BC&b=2", {"a": "1", "b": ["ü", "2"]}),
        ("text/plain", "plain ü", "plain ü"),
        ("", "whatever", "whatever"),
        ("application/json", "", None),
    ],
)
async def test_a_webhook_takes_what_is_posted(
    guarded: Server, kind: str, body: str, payload: Any
) -> None:
    run_id = await started(guarded, "hooked")
    path = await hook_of(guarded, run_id)
    assert path.startswith("/hooks/")
    async with guarded.client.post(
        guarded.url + path,
        data=body.encode(),
        headers={"content-type": kind, "host": "hooks.example", "origin": "https://example.com"},
    ) as reply:
        assert reply.status == 202, await reply.text()
    assert (await ended(guarded, run_id))["result"] == payload


async def test_a_webhook_repeated_with_its_id_counts_once(server: Server) -> None:
    run_id = await started(server, "hooked_twice")
    path = await hook_of(server, run_id)
    other = await hook_of(server, other_id := await started(server, "hooked_twice"))
    for place, text, given in (
        (path, "first", "1"),
        (path, "repeated", "1"),
        (other, "theirs", "1"),  # senders choose ids for themselves
        (path, "second", "2"),
        (other, "theirs too", "2"),
    ):
        answer = await server.ask("POST", place, data=text, headers={"webhook-id": given})
        assert answer.status == 202
    assert (await ended(server, run_id))["result"] == ["first", "second"]
    assert (await ended(server, other_id))["result"] == ["theirs", "theirs too"]


async def test_a_webhook_nobody_made_is_not_there(server: Server) -> None:
    for token in ("x", "a" * 43, "%00", "%ff", "..%2f"):
        answer = await server.post(f"/hooks/{token}", {"a": 1})
        assert (answer.status, answer.error["kind"]) == (404, "NotFound")


# --- the document ---


async def test_the_openapi_document_lists_every_route_with_its_errors(server: Server) -> None:
    document = (await server.get("/api/openapi.json")).json
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert {
        "POST /api/evaluate",
        "POST /api/workflows/{name}/runs",
        "GET /api/runs",
        "GET /api/runs/{run_id}",
        "GET /api/runs/{run_id}/events",
        "GET /api/runs/{run_id}/stream",
        *(
            f"POST /api/runs/{{run_id}}/{verb}"
            for verb in ("cancel", "pause", "resume", "retry", "fork", "approve")
        ),
        "POST /api/events",
        "POST /hooks/{token}",
        "GET /healthz",
    } <= operations.keys()
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for name, operation in operations.items():
        assert operation["description"], name
        assert "422" not in operation["responses"], name
        error = operation["responses"]["4XX"]["content"]["application/json"]["schema"]
        assert error == {"$ref": "#/components/schemas/ErrorReply"}
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_the_documents_examples_are_accepted(server: Server) -> None:
    document = (await server.get("/api/openapi.json")).json["components"]["schemas"]
    examples = 0
    for name in ("Evaluate", "StartRun", "ForkRun", "Answer", "SendEvent"):
        model = getattr(bodies, name, None)
        if model is None:
            from holdfast.server.api.workflows import Evaluate as model
        for example in document[name]["examples"]:
            model.model_validate(example)
            examples += 1
    assert examples >= 5
    schemas.ErrorReply.model_validate_json(json.dumps(document["ErrorReply"]["examples"][0]))
