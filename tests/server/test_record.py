"""A run's record: bounded, with the whole of it behind its links, and sums that are exact."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import start
from holdfast.cli.run_text import about_runs
from holdfast.server import schemas, views
from holdfast.store import opener
from holdfast.store.sqlite import schema

from . import jobs
from .conftest import Server
from .test_api import shaped

CALLS, COMMANDS, SANDBOXES, STEPS = 10_000, 450, 230, 430
ADD_CALL = """
INSERT INTO calls (id, status, request_hash, owner, model, format, run_id, tags, scopes, held_usd,
  held_tokens, started_at, finished_at, provider, served, input_tokens, output_tokens, cost, prompt)
VALUES (?, 'completed', '', 'o', 'a/b', 'x', ?, '[]', '[]', 0, 0, ?, ?, 'a', 'b', 3, 2, ?, ?)
"""
ADD_SANDBOX = """
INSERT INTO sandboxes (id, owner, backend, isolation, runtime, timeout, cpus, memory, disk, pids,
  network, run_id, created_at, stopped_at)
VALUES (?, 'o', 'b', 'i', 'python', 1, 1, 1, 1, 1, '[]', ?, ?, 9)
"""
ADD_COMMAND = """
INSERT INTO commands (id, sandbox_id, owner, argv, argv_cut, cwd, run_id, started_at, ended_at,
  stdout_tail)
VALUES (?, 'sbx_1', 'o', '[]', 0, '/', ?, ?, 9, ?)
"""


def number(prefix: str, n: int) -> str:
    return f"{prefix}_{n:06d}"


@pytest.fixture
async def large(server: Server) -> AsyncIterator[str]:
    """A run that did a lot. Several began at the same moment."""
    run = await start(jobs.doubling, 0, STEPS)
    await run.result()
    connection: sqlite3.Connection = schema.connect(Path(server.engine.store.name))
    connection.execute("BEGIN")
    connection.executemany(
        ADD_CALL,
        [(number("call", n), run.id, n // 7, n // 7 + 1, n, "x" * 500) for n in range(CALLS)],
    )
    connection.executemany(
        ADD_SANDBOX, [(number("sbx", n), run.id, n // 3) for n in range(SANDBOXES)]
    )
    connection.executemany(
        ADD_COMMAND, [(number("cmd", n), run.id, n // 3, "out " * 2000) for n in range(COMMANDS)]
    )
    connection.execute("COMMIT")
    connection.close()
    yield run.id


async def whole(server: Server, link: str | None, kind: str, shape: Any) -> list[str]:
    """Everything behind a link."""
    found: list[str] = []
    path = (link or "").partition("?")[0]
    while link is not None:
        page = shaped(await server.get(link), shape)
        found += [item["key" if kind == "steps" else "id"] for item in page[kind]]
        assert page[kind]
        link = None if page["after"] is None else f"{path}?after={page['after']}&limit=1000"
    return found


async def test_a_large_runs_record_is_bounded_and_its_sums_are_not(
    server: Server, large: str
) -> None:
    answer = await server.get(f"/api/runs/{large}")
    shown = shaped(answer, schemas.RunDetail)
    assert len(answer.text) < 4 * views.PAGE_BYTES
    assert [len(shown[kind]) for kind in ("steps", "calls", "sandboxes")] == [views.PAGE] * 3
    assert 1 <= len(shown["commands"]) < views.PAGE, "a page ends before it is too large"
    totals = shown["totals"]
    counts = [totals[kind] for kind in ("steps", "calls", "sandboxes", "commands")]
    assert counts == [STEPS, CALLS, SANDBOXES, COMMANDS]
    assert (totals["input_tokens"], totals["output_tokens"]) == (3 * CALLS, 2 * CALLS)
    assert Decimal(totals["cost_usd"]) * 10**9 == sum(range(CALLS))
    assert totals["cost_is_complete"]


async def test_api_pages_command_line_and_agents_tell_the_same_sum(
    server: Server, large: str
) -> None:
    calls, tokens, cost = CALLS, 5 * CALLS, Decimal(sum(range(CALLS))) / 10**9
    api = (await server.get(f"/api/runs/{large}")).json["totals"]
    assert (api["calls"], api["input_tokens"] + api["output_tokens"]) == (calls, tokens)
    page = (await server.get(f"/runs/{large}.json")).json["totals"]
    (listed,) = (await server.get("/runs.json")).json["runs"]
    assert (listed["calls"], listed["tokens"]) == (calls, tokens)
    assert {Decimal(each["cost_usd"]) for each in (api, page, listed)} == {cost}
    store = Path(server.engine.store.name)
    about = (await about_runs(store, [large]))[large].as_json()
    assert (about["calls"], about["tokens"], about["cost"]) == (calls, tokens, float(cost))
    ledger = opener.ledger(store)
    try:
        agents = await ledger.totals([large])
    finally:
        ledger.close()
    assert (agents.calls, agents.tokens, agents.usd) == (calls, tokens, cost)


@pytest.mark.parametrize(
    ("kind", "shape", "count"),
    [
        ("steps", schemas.StepPage, STEPS),
        ("calls", schemas.CallPage, CALLS),
        ("sandboxes", schemas.SandboxPage, SANDBOXES),
        ("commands", schemas.CommandPage, COMMANDS),
    ],
)
async def test_the_links_lead_to_the_rest_in_order_and_once(
    server: Server, large: str, kind: str, shape: Any, count: int
) -> None:
    shown = (await server.get(f"/api/runs/{large}")).json
    first = [item["key" if kind == "steps" else "id"] for item in shown[kind]]
    found = first + await whole(server, shown["more"][kind], kind, shape)
    assert len(set(found)) == len(found) == count
    if kind != "steps":
        assert found == sorted(found)
    assert found == await whole(server, f"/api/runs/{large}/{kind}", kind, shape)


async def test_a_small_runs_record_has_everything_and_no_links(server: Server) -> None:
    run = await start(jobs.doubling, 1, 3)
    await run.result()
    shown = shaped(await server.get(f"/api/runs/{run.id}"), schemas.RunDetail)
    assert (len(shown["steps"]), shown["more"]) == (3, {})
    page = shaped(await server.get(f"/api/runs/{run.id}/steps?limit=2"), schemas.StepPage)
    assert [step["key"] for step in page["steps"]] == [s["key"] for s in shown["steps"][:2]]
    assert page["after"] == shown["steps"][1]["key"]
    empty = await server.get(f"/api/runs/{run.id}/calls")
    assert shaped(empty, schemas.CallPage) == {"calls": [], "after": None}


async def test_a_call_without_a_price_makes_the_cost_incomplete(server: Server, large: str) -> None:
    connection = sqlite3.connect(server.engine.store.name)
    connection.execute("UPDATE calls SET cost = NULL WHERE id = ?", (number("call", 9999),))
    connection.commit()
    connection.close()
    totals = (await server.get(f"/api/runs/{large}")).json["totals"]
    assert not totals["cost_is_complete"]


@pytest.mark.parametrize("kind", ["steps", "calls", "sandboxes", "commands"])
@pytest.mark.parametrize("query", ["after=nothing", "limit=0", "limit=1001", "before=x"])
async def test_a_page_that_can_not_be_meant_is_refused(
    server: Server, kind: str, query: str
) -> None:
    run = await start(jobs.doubling, 1)
    await run.result()
    answer = await server.get(f"/api/runs/{run.id}/{kind}?{query}")
    assert (answer.status, answer.error["kind"]) == (400, "UsageError")


async def test_another_runs_call_is_no_place_in_this_one(server: Server, large: str) -> None:
    other = await start(jobs.doubling, 1)
    await other.result()
    answer = await server.get(f"/api/runs/{other.id}/calls?after={number('call', 1)}")
    assert answer.status == 400


async def test_the_inspectors_json_of_a_large_run_is_bounded_too(
    server: Server, large: str
) -> None:
    shown = (await server.get(f"/runs/{large}.json")).json
    assert (len(shown["steps"]), len(shown["calls"])) == (200, 200)
    assert shown["totals"]["steps"] == STEPS
    for kind, place in (("steps", shown["steps"][-1]["key"]), ("calls", shown["calls"][-1]["id"])):
        rest = (await server.get(shown["more"][kind])).json
        whole_page = (await server.get(f"/api/runs/{large}/{kind}?after={place}")).json
        assert rest == whole_page and rest[kind]
