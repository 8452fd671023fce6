"""The application: the API and the inspector's pages over an engine that somebody else opened.

Everything it works with hangs on `app.state`; two applications in a process don't meet. What
runs do is the engine's business; who may ask is `security`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

from holdfast import __version__
from holdfast.errors import HoldfastError, UsageError
from holdfast.gateway.gateway import Gateway
from holdfast.runtime.engine import Engine
from holdfast.server import inspector, login
from holdfast.server.api import (
    approvals,
    events,
    health,
    run_control,
    runs,
    schedules,
    webhooks,
    workflows,
)
from holdfast.server.authentication import Gatekeeper
from holdfast.server.change_feed import Feed
from holdfast.server.inspector.project_picture import ProjectPicture
from holdfast.server.probes import Numbers
from holdfast.server.replies import from_http, unexpected
from holdfast.server.requests import BadBody
from holdfast.server.security import HEADERS, Guard, refusal
from holdfast.server.settings import ServerSettings
from holdfast.session import Caller, set_caller
from holdfast.store import opener

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def create_app(
    engine: Engine,
    settings: ServerSettings | None = None,
    *,
    gateway: Gateway | None = None,
    picture: ProjectPicture | None = None,
) -> FastAPI:
    """The application on an engine that is open.

    `gateway`: whose calls are shown; by default the one that this process's steps use.
    `picture`: of the project whose runs these are, for the page that shows it.
    """
    settings = settings or ServerSettings()
    settings.check_reach()
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.gateway = gateway
    app.state.picture = picture
    app.state.sandboxes = opener.sandbox_records(engine.store.name)
    app.state.inspection = opener.inspection(engine.store.name)
    app.state.numbers = Numbers(engine, app.state.inspection)
    app.state.gatekeeper = Gatekeeper(settings)
    app.state.feed = Feed(
        engine, keep_alive=settings.keep_alive_seconds, max_readers=settings.max_streams
    )
    for module in (
        workflows,
        runs,
        run_control,
        webhooks,
        approvals,
        events,
        schedules,
        health,
        login,
    ):
        app.include_router(module.router)
    use_document(app)
    app.include_router(inspector.router, include_in_schema=False)
    app.add_route("/", _home, include_in_schema=False)
    app.add_exception_handler(HoldfastError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _of_framework)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(_WithEngine, engine=engine)
    app.add_middleware(Guard, keeper=app.state.gatekeeper)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    yield
    await app.state.feed.close()
    await app.state.sandboxes.close()
    app.state.inspection.close()


async def _home(_request: Request) -> Response:
    return RedirectResponse("/runs", 307)


class _WithEngine:
    """Has what is called while answering work on this application's engine."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app, self._engine = app, engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            set_caller(Caller(engine=self._engine))
        await self._app(scope, receive, send)


# --- errors ---


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return refusal(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refusal(request, UsageError(describe(error)))


def describe(error: RequestValidationError) -> str:
    """What is wrong with a request, and where: the first thing, and how many more."""
    problems = error.errors()
    first = problems[0]
    place = ".".join(str(part)[:50] for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{place}: {first['msg']}{more}"


async def _of_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, BadBody):
        return refusal(request, error.error)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(_methods_here(request))
    return refusal(request, from_http(error, request.method, request.url.path[:200]), headers)


def _methods_here(request: Request) -> list[str]:
    """What a path takes; a route alone knows only its own method."""
    routes = request.app.routes
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


async def _unexpected(request: Request, error: Exception) -> Response:
    """A mistake of ours. (What it was is in the log; Starlette raises it again behind us.)"""
    reply = refusal(request, unexpected(error))
    reply.headers.update(HEADERS)  # this is answered outside of the guard
    return reply


# --- the OpenAPI document: what FastAPI knows, and how to log in ---

DESCRIPTION = """Durable runs over HTTP: start them, follow them, steer them.

Errors are `{"error": {"kind", "message", "hint"}}`. Times are seconds since 1970, UTC; money is
US dollars as text. Where the server has a token, send it as `Authorization: Bearer …`.
"""


def use_document(app: FastAPI) -> None:
    """Have the application give its document, made once, at its `openapi_url`."""
    made: list[dict[str, Any]] = []

    def document() -> dict[str, Any]:
        if not made:
            made.append(_document(app))
        return made[0]

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}, {}]
    for path, operations in found["paths"].items():
        for operation in operations.values():
            if not path.startswith("/api/"):
                operation["security"] = []
    return found
