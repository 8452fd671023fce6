"""Refusals and the login, as people see them: pages, with the same status, and nothing unescaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import RunFailed, start
from holdfast.ready.frozen_runs import FrozenRun, replay_frozen

from . import jobs
from .conftest import TOKEN, Answer, Server, running

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def check_page(answer: Answer, status: int, *words: str) -> None:
    """It is a page in the inspector's look, under its policy."""
    assert answer.status == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "/static/inspector.css" in answer.text
    assert "<script>" not in answer.text and "onerror=" not in answer.text.replace("&#34;", "")
    for word in words:
        assert word in answer.text, word


async def test_a_path_that_is_not_there_is_a_page_for_people_and_json_for_programs(
    server: Server,
) -> None:
    check_page(await server.get("/nowhere", headers=BROWSER), 404, "Not found", "/nowhere")
    for path, headers in (("/nowhere", {}), ("/api/nowhere", BROWSER), ("/nowhere.json", BROWSER)):
        answer = await server.get(path, headers=headers)
        assert (answer.status, answer.error["kind"]) == (404, "NotFound"), path


async def test_what_is_refused_is_shown_escaped(server: Server) -> None:
    answer = await server.get("/%3Cscript%3Ealert(1)%3C/script%3E", headers=BROWSER)
    check_page(answer, 404, "&lt;script&gt;")


async def test_a_form_without_its_token_is_a_page(server: Server) -> None:
    answer = await server.ask("POST", "/runs/x/do/cancel", data={"csrf": "no"}, headers=BROWSER)
    check_page(answer, 403, "Refused", "reload the page")


async def test_another_sites_form_is_a_page(server: Server) -> None:
    foreign = {**BROWSER, "origin": "https://evil.example"}
    check_page(await server.ask("POST", "/runs/x/do/cancel", headers=foreign), 403, "another site")


async def test_a_strange_name_is_a_page_that_looks_right(server: Server) -> None:
    strange = {**BROWSER, "host": "evil.example"}
    answer = await server.get("/runs", headers=strange)
    check_page(answer, 421, "evil.example")
    assert "/runs" not in re.findall(r'href="([^"]+)"', answer.text)
    sheet = re.search(r'href="(/static/inspector.css[^"]*)"', answer.text)
    assert sheet is not None
    assert (await server.get(sheet[1], headers={"host": "evil.example"})).status == 200


async def test_too_many_requests_are_a_page_that_says_how_long(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", requests_per_minute=6) as server:
        assert (await server.get("/runs", headers=BROWSER)).status == 200
        answer = await server.get("/runs", headers=BROWSER)
        check_page(answer, 429, "Too many requests", f"in {answer.headers['retry-after']} s")


async def test_without_a_login_a_form_is_a_page_and_leads_to_the_login(guarded: Server) -> None:
    guarded.headers = {}
    answer = await guarded.ask("POST", "/runs/x/do/cancel", headers=BROWSER)
    check_page(answer, 401, "Log in first", 'href="/login"')
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "/sandboxes" not in answer.text


async def test_a_method_that_a_page_does_not_take_is_a_page(server: Server) -> None:
    token = {"x-csrf-token": server.app.state.gatekeeper.csrf("")}
    answer = await server.ask("DELETE", "/runs", headers={**BROWSER, **token})
    check_page(answer, 405, "Not possible here")
    assert answer.headers["allow"] == "GET"


async def test_a_mistake_of_ours_is_a_page_without_its_details(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("a secret")

    answer = await server.get("/broken", headers=BROWSER)
    check_page(answer, 500, "Something went wrong here", "ZeroDivisionError")
    assert "a secret" not in answer.text
    assert (await server.get("/broken")).error["kind"] == "InternalError"


async def test_the_login_is_a_page_in_the_inspectors_look(guarded: Server) -> None:
    guarded.headers = {}
    hostile = "/runs?q=%22%3E%3Cscript%3E"
    page = await guarded.get(f"/login?next={hostile}", headers=BROWSER)
    check_page(page, 200, 'type="password"', "The server’s token")
    wrong = await guarded.ask("POST", "/login", data={"token": "no", "next": '/"><script>'})
    check_page(wrong, 401, "That is not the token.", 'role="alert"', "&lt;script&gt;")
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text):
        assert (await guarded.get(path)).status == 200, path
    assert (await guarded.get(f"/login?token={TOKEN}")).status == 303


async def test_pages_show_runs_with_half_characters(server: Server) -> None:
    run = await start(jobs.halved)
    with pytest.raises(RunFailed):
        await run.result()
    place = f"/runs/{run.id}"
    for path in (
        "/runs",
        "/runs?q=half",
        place,
        f"{place}/transcript",
        f"{place}/events",
        f"{place}/json",
    ):
        answer = await server.get(path, headers=BROWSER)
        assert answer.status == 200, path
        assert "half ? a character" in answer.text or "na\\udcffme" in answer.text, path
        mark = path.find("?")
        data = f"{path}.json" if mark < 0 else f"{path[:mark]}.json{path[mark:]}"
        assert (await server.get(data)).status == 200, data
    shown = (await server.get(f"/api{place}")).json
    assert shown["attributes"]["task"] == "half ? a character"
    assert (await server.get(f"/api{place}/events", headers={"accept": "application/json"})).json


async def test_a_runs_page_offers_the_run_as_a_file_that_pytest_replays(server: Server) -> None:
    run = await start(jobs.doubling, 4)
    assert await run.result() == 8
    page = await server.get(f"/runs/{run.id}", headers=BROWSER)
    assert f'download href="/runs/{run.id}/frozen.json"' in page.text
    answer = await server.get(f"/runs/{run.id}/frozen.json")
    assert answer.headers["content-disposition"] == f'attachment; filename="{run.id}.json"'
    assert replay_frozen(FrozenRun.from_text(answer.text), jobs.doubling).passed
    assert (await server.get("/runs/run_none/frozen.json")).status == 404
