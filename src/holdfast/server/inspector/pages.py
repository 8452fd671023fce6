"""How a page is made: its template, the same as JSON, and errors as pages.

A page is registered once and answers twice: HTML at its path, JSON at the path with `.json` (and
for whoever accepts JSON only). Everything a template is given is escaped by it.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast import __version__
from holdfast.agents.run_words import one_line
from holdfast.errors import HoldfastError, UsageError
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.providers import resolve_providers
from holdfast.gateway.secrets import Redactor
from holdfast.ready.blueprint_page import ASSETS, asset
from holdfast.server.authentication import csrf_token
from holdfast.server.inspector import text_format
from holdfast.server.inspector.run_data import label_of
from holdfast.server.replies import Json, error_headers, error_reply
from holdfast.store.inspection import Inspection, View

HERE = Path(__file__).parent
STATIC = HERE / "static"
NAVIGATION = (
    ("runs", "/runs", "Runs"),
    ("approvals", "/approvals", "Approvals"),
    ("schedules", "/schedules", "Schedules"),
    ("models", "/models", "Models"),
    ("sandboxes", "/sandboxes", "Sandboxes"),
    ("workers", "/workers", "Workers"),
    ("blueprint", "/blueprint", "Blueprint"),
)


HEADINGS = {
    400: "That can’t be done",
    401: "Log in first",
    403: "Refused",
    404: "Not found",
    405: "Not possible here",
    408: "Too slow",
    409: "Not possible now",
    413: "Too large",
    415: "Not understood",
    421: "Not a name of this server’s",
    429: "Too many requests",
    500: "Something went wrong here",
    503: "Out of reach",
}
TOUCHES = {
    "runs": ("calls", "sandboxes", "commands", "egress", "approvals"),
    "approvals": ("approvals",),
    "models": ("calls", "approvals"),
    "sandboxes": ("sandboxes", "commands", "egress", "approvals"),
    "workers": ("workers", "approvals"),
}
"""What is not in the log and shown by the pages of a section."""


PENDING = 100
"""Approvals that the navigation counts; with so many it says `99+`."""


@dataclass
class Page:
    """What a handler answers with."""

    template: str
    title: str
    section: str
    context: dict[str, Any]
    json: Callable[[], Any]
    status: int = 200
    live: str | None = None
    """Where news come from, if the page follows them."""
    touch: tuple[str, ...] | None = None
    """Of what it is told that is not in the log; None: what its section shows."""
    every: int | None = None
    """Seconds after which it looks again in any case: for what no record tells."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    pending: int = 0
    """Approvals that wait for a decision, for the navigation."""


Handler = Callable[[Request], Awaitable[Page | Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages, for whoever asked for one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except HoldfastError as error:
                if not wants_page(request) or request.url.path.endswith(".json"):
                    return error_reply(error)
                return error_page(request, error, error_headers(error))

        return answer


def add_page(router: APIRouter, path: str, handler: Handler) -> None:
    """Register a page at its path, and its JSON beside it."""

    async def as_json(request: Request) -> Response:
        found = await handler(request)
        return found if isinstance(found, Response) else Json(found.json(), found.status)

    async def as_page(request: Request) -> Response:
        if not wants_page(request):
            return await as_json(request)
        # Asked before the page: what changes in between is told once more, not missed.
        mark, pending = await inspection(request).ask(lambda view: (view.mark(), _pending(view)))
        found = await handler(request)
        if isinstance(found, Response):
            return found
        found.pending = pending
        return render(request, found, mark)

    name = f"inspector {path}"
    router.add_api_route(f"{path}.json", as_json, name=f"{name} json", response_model=None)
    router.add_api_route(path, as_page, name=name, response_model=None)


def _pending(view: View) -> int:
    return len(view.approvals("pending", None, PENDING, None, time.time()))


def add_action(router: APIRouter, path: str, show: Handler, do: Handler) -> None:
    """Register an action: a page that asks first, and what is done when it is confirmed."""
    add_page(router, path, show)

    async def act(request: Request) -> Response:
        found = await do(request)
        return found if isinstance(found, Response) else render(request, found)

    router.add_api_route(
        path, act, methods=["POST"], name=f"inspector do {path}", response_model=None
    )


def wants_page(request: Request) -> bool:
    """Whether a page is asked for, rather than JSON."""
    accept = request.headers.get("accept", "")
    return "application/json" not in accept or "text/html" in accept


def render(request: Request, page: Page, mark: str = "") -> Response:
    """The page as HTML. `mark`: of the state that it shows, or of one before."""
    text = (
        _templates()
        .get_template(page.template)
        .render(
            page=page,
            now=time.time(),
            csrf=csrf_token(request),
            navigation=_navigation(request),
            version=__version__,
            path=request.url.path,
            query=dict(request.query_params),
            json_url=json_url(request),
            live=_live(page, mark),
            **page.context,
        )
    )
    headers = {"cache-control": "no-store", **page.headers}
    # Half a surrogate pair is no character, but may be in what a program recorded.
    return HTMLResponse(text.encode("utf-8", "replace"), page.status, headers)


def _navigation(request: Request) -> list[tuple[str, str, str]]:
    """The sections; the blueprint where there is a project to draw."""
    drawn = getattr(request.app.state, "picture", None) is not None
    return [each for each in NAVIGATION if drawn or each[0] != "blueprint"]


def _live(page: Page, mark: str) -> str:
    """The event stream that a page follows, but for its place."""
    if page.live is None:
        return ""
    kinds = TOUCHES.get(page.section, ()) if page.touch is None else page.touch
    return url(page.live, None, touch=kinds, mark=mark)


def error_page(
    request: Request,
    error: HoldfastError,
    headers: Mapping[str, str] | None = None,
    *,
    bare: bool = False,
) -> Response:
    """An error as a page. `bare`: without the way to other pages, for who may not see them."""
    heading = HEADINGS.get(error.http_status, error.kind)
    context: dict[str, Any] = {
        "error": error,
        "heading": heading,
        "wait": (headers or {}).get("retry-after"),
        "frame": "bare.html" if bare else "base.html",
        "log": 0,
    }
    page = Page("error.html", heading, "", context, dict, status=error.http_status)
    page.headers.update(headers or {})
    return render(request, page)


def json_url(request: Request) -> str:
    query = request.url.query
    return f"{quote(request.url.path)}.json{f'?{query}' if query else ''}"


def seen(place: str) -> Response:
    """Go and look at a page, after something was done."""
    return RedirectResponse(place, 303)


def url(path: str, given: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A path with its query: what is given, with some of it changed; None takes one away."""
    fields = {**(given or {}), **changes}
    chosen = {
        name: value for name, value in fields.items() if value is not None and value not in ("", ())
    }
    return f"{path}?{urlencode(chosen, doseq=True)}" if chosen else path


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "duration", "brief", "ago", "number", "compact", "money", "size", "memory", "percent",
        "moment", "machine_time", "clock", "title", "short_id",
    ):  # fmt: skip
        environment.filters[name] = getattr(text_format, name)
    filters: dict[str, Any] = environment.filters
    filters["one_line"] = one_line
    environment.filters["label"] = label_of
    environment.filters["pathpart"] = lambda text: quote(str(text), safe="")
    own: dict[str, Any] = {"url": url, "static": static_url}
    cast("dict[str, Any]", environment.globals).update(own)
    return environment


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """The static files by name, with the hash that their addresses carry."""
    files = {file.name: file.read_bytes() for file in sorted(STATIC.iterdir()) if file.is_file()}
    files |= {name: asset(name).encode() for name in ASSETS}
    return {
        name: (data, hashlib.blake2b(data, digest_size=6).hexdigest())
        for name, data in files.items()
    }


def static_url(name: str) -> str:
    """Where a static file is; another address whenever it changes."""
    return f"/static/{name}?v={static_files()[name][1]}"


# --- what handlers ask of a request ---


def inspection(request: Request) -> Inspection:
    """The reader of the store that the application works on."""
    return cast("Inspection", request.app.state.inspection)


def mask(request: Request) -> Callable[[str], str]:
    """What takes secrets out of what is shown."""
    state = request.app.state
    if getattr(state, "mask", None) is None:
        gateway = cast("Gateway | None", state.gateway)
        state.mask = gateway.redact if gateway is not None else _redactor()
    return cast("Callable[[str], str]", state.mask)


def _redactor() -> Redactor:
    config = GatewayConfig.load(os.environ)
    providers = resolve_providers(config, os.environ)
    return Redactor([p.key for p in providers.values() if p.key], config.redact)


def whole(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number from the query, within bounds."""
    given = request.query_params.get(name, "")
    if not given:
        return default
    try:
        return min(max(int(given), least), most)
    except ValueError as error:
        raise UsageError(f"{name} is no whole number: {given[:50]!r}") from error


def moment_of(request: Request, name: str) -> float | None:
    """A moment from the query, in seconds."""
    given = request.query_params.get(name, "")
    if not given:
        return None
    try:
        found = float(given)
    except ValueError as error:
        raise UsageError(f"{name} is no moment: {given[:50]!r}") from error
    if not math.isfinite(found):
        raise UsageError(f"{name} is no moment: {given[:50]!r}")
    return found
