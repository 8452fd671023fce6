"""`/login`: the token once, a cookie from then on."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.server.authentication import Gatekeeper
from holdfast.server.inspector.pages import Page, render

router = APIRouter(include_in_schema=False)

HOME = "/runs"


@router.get("/login")
async def login_page(request: Request) -> Response:
    """Ask for the token, or take it from the address."""
    given = request.query_params.get("token")
    place = local(request.query_params.get("next"))
    return _page(request, place) if given is None else _log_in(request, given, place)


@router.post("/login")
async def login(request: Request) -> Response:
    """Take the token from the form."""
    form = dict(parse_qsl((await request.body()).decode("latin-1"), keep_blank_values=True))
    return _log_in(request, form.get("token", ""), local(form.get("next")))


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Forget the login."""
    reply = RedirectResponse("/login", 303)
    reply.delete_cookie(_keeper(request).cookie)
    return reply


def _log_in(request: Request, given: str, place: str) -> Response:
    keeper = _keeper(request)
    if keeper.settings.token is None:
        return RedirectResponse(place, 303)
    if not keeper.is_token(given):
        return _page(request, place, "That is not the token.", 401)
    reply = RedirectResponse(place, 303)
    reply.set_cookie(
        keeper.cookie,
        keeper.new_login(),
        max_age=int(keeper.settings.login_seconds),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return reply


def _page(request: Request, place: str, wrong: str = "", status: int = 200) -> Response:
    context = {"place": place, "wrong": wrong, "log": 0}
    return render(request, Page("login.html", "Log in", "", context, dict, status))


def _keeper(request: Request) -> Gatekeeper:
    return cast("Gatekeeper", request.app.state.gatekeeper)


def local(place: str | None) -> str:
    """A path of this server; anything that could lead elsewhere is the first page."""
    if not place or not place.startswith("/") or place.startswith(("//", "/\\")):
        return HOME
    return place if place.isprintable() and "\\" not in place else HOME
