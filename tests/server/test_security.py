"""Who may ask the server for what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount, Route
from yarl import URL

from holdfast.errors import ConfigError, CrossSite, WrongHost
from holdfast.server.app import create_app
from holdfast.server.authentication import Gatekeeper, csrf_token
from holdfast.server.login import local
from holdfast.server.settings import ServerSettings

from .conftest import TOKEN, Server, running

OPEN = {
    *("GET /readyz", "HEAD /readyz"),
    *("GET /healthz", "HEAD /healthz", "GET /login", "POST /login"),
    *(
        "POST /hooks/{token}",
        "POST /hooks/{approval_id}/{token}",
        "GET /hooks/{approval_id}/{token}",
        "POST /hooks/from/{source}",
    ),
    *("GET /static/{name}", "GET /favicon.ico"),
}
"""What needs no token. Think twice before something is added here."""


# --- names ---


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", ""])
async def test_a_strangers_name_that_points_at_us_gets_nothing(server: Server, host: str) -> None:
    answer = await server.get("/api/runs", headers={"host": host})
    assert (answer.status, answer.error["kind"]) == (421, "WrongHost")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.3.2.1:80", "[::1]:7"]
)
async def test_our_own_names_are_answered(server: Server, host: str) -> None:
    assert (await server.get("/api/runs", headers={"host": host})).status == 200


def test_beyond_loopback_addresses_and_allowed_names_are_ours() -> None:
    settings = ServerSettings("0.0.0.0", token=TOKEN, allowed_hosts=("Runs.Example",))
    keeper = Gatekeeper(settings)
    for host in ("192.168.1.7:7420", "[fe80::1]", "runs.example", "localhost", "runs.example.:80"):
        keeper.check_host(host)
    for host in ("example", "evil.example", "runs.example.evil.example", None):
        with pytest.raises(WrongHost):
            keeper.check_host(host)
    with pytest.raises(WrongHost):
        Gatekeeper(ServerSettings()).check_host("192.168.1.7")


# --- reach ---


@pytest.mark.parametrize(
    "reach", [{"host": "0.0.0.0"}, {"host": "::"}, {"host": "10.0.0.1"}, {"host": "my.host"}]
)
def test_a_server_others_can_reach_needs_a_token(reach: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        ServerSettings(**reach).check_reach()
    ServerSettings(**reach, token=TOKEN).check_reach()


def test_a_public_name_for_a_server_on_loopback_needs_a_token_too() -> None:
    with pytest.raises(ConfigError, match=r"runs\.example"):
        ServerSettings(allowed_hosts=("localhost", "runs.example")).check_reach()


async def test_no_application_is_made_that_is_open_to_others(server: Server) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        create_app(server.engine, ServerSettings("0.0.0.0"))


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "sixteen characters\n", "ü" * 20])
def test_a_token_that_is_short_or_unsendable_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        ServerSettings(token=token)


def test_a_token_is_not_shown_with_the_settings() -> None:
    assert TOKEN not in repr(ServerSettings(token=TOKEN))


# --- tokens ---


def operations(routes: Sequence[BaseRoute], prefix: str = "") -> list[tuple[str, str]]:
    """Every method and path of an application."""
    found: list[tuple[str, str]] = []
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            found += operations(included.routes, prefix + route.include_context.prefix)  # type: ignore[attr-defined]
        elif isinstance(route, Mount):  # files, or another application: one path stands for all
            found.append(("GET", f"{prefix}{route.path}/anything"))
        else:
            assert isinstance(route, Route), route
            methods = route.methods or {"GET"}
            found += [(method, prefix + route.path) for method in sorted(methods)]
    return found


async def test_every_route_but_the_few_open_ones_wants_the_token(guarded: Server) -> None:
    asked = 0
    for method, path in operations(guarded.app.routes):
        concrete = re.sub(r"\{[^}]*\}", "x", path)
        for wrong in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN},
                      {"authorization": "Basic eDp4"}, {"cookie": f"{guarded.app.state.gatekeeper.cookie}=1.2"}):  # fmt: skip
            async with guarded.client.request(
                method, guarded.url + concrete, headers=wrong, allow_redirects=False
            ) as reply:
                if f"{method} {path}" in OPEN:
                    assert reply.status != 401 or path == "/login", (method, path)
                else:
                    assert reply.status == 401, (method, path, reply.status)
                    assert reply.headers["www-authenticate"].startswith("Bearer")
                    asked += 1
    assert asked > 5 * 15
    listed = {f"{method} {path}" for method, path in operations(guarded.app.routes)}
    assert listed >= OPEN


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]
PATHS = ["/", "/api", "/api/", "/api/runs", "/API/runs", "//api/runs", "/api/runs/../runs",
         "/nowhere", "/healthz/", "/healthz/../api/runs", "/healthz%2f..", "/login/x", "/Login",
         "/hooks/x/../../api/runs", "/static/../api/runs", "/static%2f..%2fapi/runs", "/static",
         "/hooks/x%2f..%2f..%2fapi", "/hooks", "/logout"]  # fmt: skip


async def test_no_other_path_or_method_gets_round_the_token(guarded: Server) -> None:
    for path in PATHS:
        for method in METHODS:
            url = URL(guarded.url + path, encoded=True)
            async with guarded.client.request(method, url, allow_redirects=False) as reply:
                # /hooks/… is open by its path, and has nothing but webhooks behind it.
                behind = path.startswith("/hooks/") and reply.status in (404, 405)
                assert reply.status == 401 or behind, (method, path, reply.status)


async def test_the_token_opens_everything(guarded: Server) -> None:
    assert (await guarded.get("/api/runs")).status == 200
    lower = {"authorization": f"bearer {TOKEN}"}
    assert (await guarded.get("/api/runs", headers=lower)).status == 200


async def test_login_gives_a_cookie_that_stands_for_the_token(guarded: Server) -> None:
    guarded.headers = {}
    page = await guarded.get("/runs?status=failed", headers={"accept": "text/html"})
    assert page.status == 303
    assert page.headers["location"] == "/login?next=%2Fruns%3Fstatus%3Dfailed"
    assert "<form" in (await guarded.get(page.headers["location"])).text
    wrong = await guarded.ask("POST", "/login", data={"token": "no", "next": "/runs"})
    assert wrong.status == 401 and "set-cookie" not in wrong.headers
    for answer in (
        await guarded.ask("POST", "/login", data={"token": TOKEN, "next": "/runs?a=1"}),
        await guarded.get(f"/login?token={TOKEN}&next=/runs?a=1"),
    ):
        assert (answer.status, answer.headers["location"]) == (303, "/runs?a=1")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
        shown = {"cookie": cookie.partition(";")[0]}
        assert (await guarded.get("/api/runs", headers=shown)).status == 200
        name, _, value = shown["cookie"].partition("=")
        later = f"{name}=ffffffffff.{value.partition('.')[2]}"
        assert (await guarded.get("/api/runs", headers={"cookie": later})).status == 401


async def test_a_login_ends_after_its_time(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", token=TOKEN, login_seconds=-1) as server:
        answer = await server.get(f"/login?token={TOKEN}")
        cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0], "authorization": ""}
        assert (await server.get("/api/runs", headers=cookie)).status == 401


@pytest.mark.parametrize(
    "place",
    ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "", None, "/a\r\nb: c"],
)
def test_a_login_leads_to_no_other_site(place: str | None) -> None:
    assert local(place) == "/runs"


# --- other sites ---

CROSS = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://["},
]


@pytest.mark.parametrize("headers", CROSS)
async def test_another_sites_page_can_change_nothing(
    server: Server, headers: dict[str, str]
) -> None:
    answer = await server.post("/api/workflows/doubling/runs", {"input": {"number": 1}}, headers=headers)  # fmt: skip
    assert (answer.status, answer.error["kind"]) == (403, "CrossSite")
    assert (await server.get("/api/runs")).json["runs"] == []


async def test_another_sites_page_can_read_nothing_behind_our_back(server: Server) -> None:
    script = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert (await server.get("/api/runs", headers=script)).status == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await server.get("/api/runs", headers=link)).status == 200
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert (await server.get("/api/runs", headers=own)).status == 200
    assert "access-control-allow-origin" not in (await server.get("/api/runs")).headers


async def test_our_own_pages_and_programs_may_change_things(server: Server) -> None:
    body = {"input": {"number": 1}}
    for headers in ({}, {"origin": server.url, "sec-fetch-site": "same-origin"}):
        answer = await server.post("/api/workflows/doubling/runs", body, headers=headers)
        assert answer.status == 202


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
async def test_the_api_takes_no_forms(server: Server, kind: str) -> None:
    answer = await server.ask(
        "POST", "/api/events", data=b'{"name": "x"}', headers={"content-type": kind}
    )
    assert (answer.status, answer.error["kind"]) == (415, "WrongMediaType")


async def with_form(server: Server) -> list[str]:
    """A page with a form, as the inspector has them; returns what was done by it."""
    from starlette.responses import PlainTextResponse, Response

    done: list[str] = []

    @server.app.get("/form")
    async def form(request: Request) -> Response:
        return PlainTextResponse(csrf_token(request))

    @server.app.post("/form")
    async def act(request: Request) -> Response:
        done.append((await request.body()).decode())
        return PlainTextResponse("done")

    return done


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_form_needs_the_token_of_its_page(tmp_path: Path, token: str | None) -> None:
    async with running(tmp_path / "store.db", token=token) as server:
        await check_form(server)


async def check_form(server: Server) -> None:
    done = await with_form(server)
    login: dict[str, str] = {}
    if server.settings.token:
        server.headers = {}
        answer = await server.get(f"/login?token={TOKEN}")
        login = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    token = (await server.get("/form", headers=login)).text
    for wrong in ({}, {"csrf": ""}, {"csrf": token[:-1]}, {"csrf": "ü"}):
        answer = await server.ask("POST", "/form", data=wrong, headers=login)
        assert (answer.status, answer.error["kind"]) == (403, "CrossSite"), wrong
    assert not done
    right = await server.ask("POST", "/form", data={"csrf": token, "a": "1"}, headers=login)
    header = await server.ask("POST", "/form", headers={**login, "x-csrf-token": token})
    asked = await server.post("/form", {"a": 1}, headers=login)
    assert [right.text, header.text, asked.text] == ["done"] * 3
    assert done[0] == f"csrf={token}&a=1"
    foreign = {**login, "origin": "https://evil.example"}
    assert (await server.ask("POST", "/form", data={"csrf": token}, headers=foreign)).status == 403


def test_a_forms_token_belongs_to_its_login() -> None:
    keeper = Gatekeeper(ServerSettings(token=TOKEN))
    with pytest.raises(CrossSite):
        keeper.check_csrf(keeper.csrf("one"), "another")
    keeper.check_csrf(Gatekeeper(ServerSettings(token=TOKEN)).csrf("one"), "one")


# --- answers ---


@pytest.mark.parametrize("path", ["/api/runs", "/api/nothing", "/nothing", "/login", "/healthz"])
async def test_every_answer_tells_browsers_what_they_may(server: Server, path: str) -> None:
    headers = (await server.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


async def test_refusals_carry_the_headers_too(guarded: Server) -> None:
    for headers in ({"authorization": ""}, {"host": "evil.example"}):
        answer = await guarded.get("/api/runs", headers=headers)
        assert answer.status in (401, 421)
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_websockets_are_refused(server: Server) -> None:
    answer = await server.get(
        "/api/runs",
        headers={"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"},
    )
    assert answer.status == 200  # as if nothing had been said of it
