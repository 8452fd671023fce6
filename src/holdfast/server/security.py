"""Who may ask the server for what.

- The Host header must be a name of ours.
- With a token set, every path but the few open ones wants it, or the login that stands for it.
- What changes something must not come from another site's page: Origin and Sec-Fetch-Site are
  checked, and an HTML form carries the CSRF token of the page it was on.
- Every answer says what a browser may do with it: nothing but our own scripts and styles, in no
  frame.

`Guard` is the middleware that does all of this before the application sees a request. What is a
name, a token, a login is `authentication`'s to say.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.errors import (
    CrossSite,
    HoldfastError,
    LoginRequired,
    PayloadTooLarge,
    TooManyRequests,
    TooSlow,
    WrongMediaType,
)
from holdfast.server.authentication import Gatekeeper, Way
from holdfast.server.inspector.pages import error_page
from holdfast.server.replies import error_headers, error_reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = re.compile(r"/healthz|/readyz|/login")
"""What needs no token: it tells nothing, or asks for the token."""
LOOKS = re.compile(r"/static/[a-z.]+|/favicon\.ico")
"""Nor do the files that pages look right with, under any name: everybody can read them in the
package, and those who are refused are to see why."""
HOOKS = "/hooks/"
"""Neither does what is here: it has a token of its own in its path."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": with that, browsers send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


def check_site(method: str, headers: Headers) -> None:
    """Raises CrossSite for what a page of another site makes a browser send."""
    site = headers.get("sec-fetch-site", "same-origin")
    foreign = site not in ("same-origin", "none")
    if method in SAFE_METHODS:
        if foreign and headers.get("sec-fetch-mode", "navigate") != "navigate":
            raise CrossSite("a page of another site asked for this")
        return
    origin = headers.get("origin")
    if foreign or (origin is not None and not _same(origin, headers.get("host", ""))):
        raise CrossSite("a page of another site asked for this change")


def _same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


class Guard:
    """The middleware; see the module's text. It reads bodies itself, with their limits."""

    def __init__(self, app: ASGIApp, keeper: Gatekeeper) -> None:
        self._app = app
        self._keeper = keeper
        self._settings = keeper.settings
        self._rate = RateLimit(self._settings.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        headers = Headers(scope=scope)
        unread = scope["method"] not in SAFE_METHODS
        try:
            way = self._admit(scope, headers)
            if unread:
                body = await self._read(headers, receive)
                unread = False
                self._check_body(scope["path"], headers, body, way)
                receive = replay(body, receive)
        except ClientGone:
            return
        except HoldfastError as error:
            if unread and not isinstance(error, TooSlow):
                await discard(receive, 4 * self._settings.max_body)
            request = Request(scope)
            reply = _login_redirect(request) if isinstance(error, LoginRequired) else None
            extra = {"connection": "close"} if unread else {}
            reply = reply or refusal(request, error, extra, bare=True)
            await reply(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        limit, seconds = self._settings.max_body, self._settings.body_seconds
        return await read_body(receive, headers.get("content-length"), limit, seconds)

    def _admit(self, scope: Scope, headers: Headers) -> Way:
        client = scope.get("client")
        self._rate.take(client[0] if client else "")
        path, method = scope["path"], scope["method"]
        if path.startswith(HOOKS):
            return "open"  # the path itself is the permission, whoever asks, by whatever name
        if LOOKS.fullmatch(path) is not None and method in SAFE_METHODS:
            return "open"
        self._keeper.check_host(headers.get("host"))
        way = self._keeper.way_in(headers)
        if way is None:
            if OPEN_PATHS.fullmatch(path) is None:
                raise LoginRequired(
                    "this server wants a token",
                    hint="send it as `Authorization: Bearer …`; in a browser, open /login",
                )
            way = "open"
        if way != "bearer":
            check_site(method, headers)
        return way

    def _check_body(self, path: str, headers: Headers, body: bytes, way: Way) -> None:
        if path.startswith(HOOKS) or path == "/login":
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == "application/json"
        if path.startswith("/api/"):
            if body and not is_json:
                raise WrongMediaType(
                    f"the body is {kind or 'of no stated kind'}, and should be JSON",
                    hint="send it with `Content-Type: application/json`",
                )
        elif way != "bearer" and not is_json:
            given = headers.get("x-csrf-token") or _field(body, kind, "csrf")
            self._keeper.check_csrf(given, self._keeper.login_of(headers))


def _field(body: bytes, kind: str, name: str) -> str | None:
    """A field of an HTML form."""
    if kind != "application/x-www-form-urlencoded":
        return None
    try:
        fields = parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return None
    return dict(fields).get(name)


def _login_redirect(request: Request) -> Response | None:
    """The way to the login page, for a browser that wanted a page."""
    if not wants_page(request) or request.method != "GET":
        return None
    query = request.scope["query_string"].decode("latin-1")
    place = quote(request.scope["path"]) + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?next={quote(place, safe='')}", 303)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


# --- how much of the server a client may have: requests a minute, bytes and seconds of a body ---


CLIENTS_REMEMBERED = 10_000


class ClientGone(Exception):
    """The client went away before its request was read."""


class RateLimit:
    """Per client so many requests a minute, of which a sixth may come at once."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._burst = max(per_minute / 6, 1.0)
        self._now = now
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Count a request; raises TooManyRequests if it is one too many."""
        if self._per_second <= 0:
            return
        now = self._now()
        left, at = self._clients.get(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        if left < 1:
            wait = (1 - left) / self._per_second
            raise TooManyRequests("too many requests", hint="slow down", retry_after=wait)
        self._clients[client] = (left - 1, now)
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_REMEMBERED:
            self._clients.popitem(last=False)


async def read_body(receive: Receive, declared: str | None, limit: int, seconds: float) -> bytes:
    """A request's whole body, refused as soon as it is known to be too large or too slow."""
    if declared is not None and declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk: bytes = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError:
        raise TooSlow(f"the request's body did not arrive within {seconds:g} s") from None


async def discard(receive: Receive, limit: int, seconds: float = 1.0) -> None:
    """Take what is left of a request that was refused, as far as it is little.

    A connection closed on unread data is reset, and the client may never see why.
    """
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while size <= limit:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the request's body is over {limit:,} bytes",
        hint="keep large data elsewhere and pass a reference, or raise the server's max_body",
    )


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out a body read before, and then what comes next."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


# --- refusals: a page for people, JSON for programs ---
# A page is for a browser that says it takes one, anywhere but under `/api`. Status and headers are
# the same in both forms.


def wants_page(request: Request) -> bool:
    """Whether a person is there to read a page."""
    path: str = request.scope["path"]
    if path == "/api" or path.startswith("/api/") or path.endswith(".json"):
        return False
    return "text/html" in request.headers.get("accept", "")


def refusal(
    request: Request,
    error: HoldfastError,
    headers: Mapping[str, str] | None = None,
    *,
    bare: bool = False,
) -> Response:
    """The answer that an error stands for. `bare`: to somebody who may not see the other pages."""
    if not wants_page(request):
        return error_reply(error, headers)
    return error_page(request, error, error_headers(error, headers), bare=bare)
