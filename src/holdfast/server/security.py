"""Who may ask the server for what.

- The Host header must be a name of ours: a stranger's name that was made to point at this
  machine (DNS rebinding) gets nothing.
- With a token set, every path but the few open ones wants it: as a bearer token, or as the cookie
  that `/login` gives for it.
- What changes something must not come from another site's page: Origin and Sec-Fetch-Site are
  checked, and an HTML form carries the CSRF token of the page it was on.
- Every answer says what a browser may do with it: nothing but our own scripts and styles, in no
  frame.

`Guard` is the middleware that does all of this before the application sees a request. Pages put
`csrf_token(request)` into their forms, as the field `csrf`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
import time
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response

from holdfast.errors import (
    CrossSite,
    HoldfastError,
    LoginRequired,
    TooSlow,
    WrongHost,
    WrongMediaType,
)
from holdfast.server.limits import ClientGone, RateLimit, discard, read_body, replay
from holdfast.server.replies import error_reply
from holdfast.server.settings import LOOPBACK_NAMES, ServerSettings, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = re.compile(r"/healthz|/login")
"""What needs no token: it tells nothing, or asks for the token."""
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
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")

Way = Literal["bearer", "cookie", "open"]
"""How a request was let in; `open` where no token is asked for."""


class Gatekeeper:
    """Tokens, cookies and names: the decisions, without HTTP around them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        # With a token, logins and open forms outlive a restart of the server.
        seed = settings.token.encode() if settings.token else secrets.token_bytes(32)
        self._secret = hashlib.blake2b(seed, person=b"holdfast server", digest_size=32).digest()
        self.cookie = f"holdfast_login_{settings.port}"

    # --- names ---

    def check_host(self, host: str | None) -> None:
        """Raises WrongHost unless it is one of our names."""
        found = _HOST.fullmatch(host or "")
        if found is None:
            raise WrongHost("the request has no valid Host header")
        if not self._is_ours(found[1].strip("[]").lower().rstrip(".")):
            raise WrongHost(
                f"{found[1]} is no name of this server's",
                hint=f"call it by {self.settings.url}, or allow the name: --allow-host {found[1]}",
            )

    def _is_ours(self, name: str) -> bool:
        settings = self.settings
        if name in LOOPBACK_NAMES or is_loopback(name) or name == settings.host.lower():
            return True
        if name in {allowed.lower() for allowed in settings.allowed_hosts}:
            return True
        # An address, not a name: nobody can make it point elsewhere.
        return not settings.is_private and (_is_address(name) or name == _own_name())

    # --- tokens ---

    def way_in(self, headers: Headers) -> Way | None:
        """How a request is let in; None: it is not."""
        token = self.settings.token
        if token is None:
            return "open"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return "bearer"
        return "cookie" if self._is_login(self.login_of(headers)) else None

    def is_token(self, given: str) -> bool:
        token = self.settings.token or ""
        return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()) and bool(token)

    def login_of(self, headers: Headers) -> str:
        """The cookie that `/login` gave, or ""."""
        return cookie_parser(headers.get("cookie", "")).get(self.cookie, "")

    def new_login(self) -> str:
        """A cookie that stands for the token, for a while."""
        until = f"{int(time.time() + self.settings.login_seconds):x}"
        return f"{until}.{self._sign('login', until)}"

    def _is_login(self, cookie: str) -> bool:
        until, _, signature = cookie.partition(".")
        if not hmac.compare_digest(
            signature.encode("utf-8", "replace"), self._sign("login", until).encode()
        ):
            return False
        return int(until, 16) > time.time()

    def csrf(self, login: str) -> str:
        """The token for forms on pages shown to this login."""
        return self._sign("csrf", login)

    def check_csrf(self, given: str | None, login: str) -> None:
        expected = self.csrf(login)
        if not hmac.compare_digest((given or "").encode("utf-8", "replace"), expected.encode()):
            raise CrossSite(
                "the form's CSRF token is missing or out of date", hint="reload the page, try again"
            )

    def _sign(self, purpose: str, text: str) -> str:
        message = f"{purpose}\n{text}".encode("utf-8", "replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_name() -> str:
    return socket.gethostname().lower()


def csrf_token(request: Request) -> str:
    """What a form on the page answered to this request carries as its field `csrf`."""
    keeper: Gatekeeper = request.app.state.gatekeeper
    return keeper.csrf(keeper.login_of(request.headers))


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
            reply = _login_redirect(scope, headers) if isinstance(error, LoginRequired) else None
            reply = reply or error_reply(error, {"connection": "close"} if unread else {})
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


def _login_redirect(scope: Scope, headers: Headers) -> Response | None:
    """The way to the login page, for a browser that wanted a page."""
    wants_page = "text/html" in headers.get("accept", "") and scope["method"] == "GET"
    if not wants_page or scope["path"].startswith("/api/"):
        return None
    query = scope["query_string"].decode("latin-1")
    place = quote(scope["path"]) + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?next={quote(place, safe='')}", 303)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
