"""The application: the API and the inspector's pages over an engine that somebody else opened.

Everything it works with hangs on `app.state`; two applications in a process don't meet. What
runs do is the engine's business; who may ask is `security`'s.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

from holdfast import __version__
from holdfast.errors import HoldfastError, UsageError
from holdfast.gateway.gateway import Gateway
from holdfast.runtime import ambient
from holdfast.runtime.engine import Engine
from holdfast.server import login
from holdfast.server.api import (
    approvals,
    evaluate,
    events,
    health,
    hooks,
    models,
    runs,
    steering,
    workflows,
)
from holdfast.server.bodies import BadBody
from holdfast.server.live import Feed
from holdfast.server.openapi import use_document
from holdfast.server.replies import Json, error_reply, from_http
from holdfast.server.security import Gatekeeper, Guard
from holdfast.server.settings import ServerSettings
from holdfast.store.sandboxes import SandboxRecords

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def create_app(
    engine: Engine, settings: ServerSettings | None = None, *, gateway: Gateway | None = None
) -> FastAPI:
    """The application on an engine that is open.

    `gateway`: whose calls are shown; by default the one that this process's steps use.
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
    app.state.sandboxes = SandboxRecords(engine.store.name)
    app.state.gatekeeper = Gatekeeper(settings)
    app.state.feed = Feed(
        engine, keep_alive=settings.keep_alive_seconds, max_readers=settings.max_streams
    )
    for module in (
        *(evaluate, workflows, runs, steering, approvals),
        *(events, hooks, models, health, login),
    ):
        app.include_router(module.router)
    use_document(app)
    _add_pages(app)
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


def _add_pages(app: FastAPI) -> None:
    """The inspector, where it is installed."""
    if importlib.util.find_spec("holdfast.server.inspector") is None:
        return
    inspector = importlib.import_module("holdfast.server.inspector")
    app.include_router(inspector.router, include_in_schema=False)

    @app.get("/", include_in_schema=False)
    async def home() -> Response:  # pyright: ignore[reportUnusedFunction]
        return RedirectResponse("/runs", 307)


class _WithEngine:
    """Has what is called while answering work on this application's engine."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app, self._engine = app, engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            ambient.set_engine(self._engine)
        await self._app(scope, receive, send)


# --- errors ---


async def _ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return error_reply(error)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_reply(UsageError(describe(error)))


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
        return error_reply(error.error)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(_methods_here(request))
    return error_reply(from_http(error, request.method, request.url.path[:200]), headers)


def _methods_here(request: Request) -> list[str]:
    """What a path takes; a route alone knows only its own method."""
    routes = request.app.routes
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


async def _unexpected(_request: Request, error: Exception) -> Response:
    """A mistake of ours. (What it was is in the log; Starlette raises it again behind us.)"""
    body = {
        "kind": "InternalError",
        "message": type(error).__name__,
        "hint": "this is a bug in Holdfast: the server's log says more",
    }
    return Json({"error": body}, 500)
