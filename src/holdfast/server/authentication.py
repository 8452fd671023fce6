"""Names, tokens, logins and the CSRF tokens of forms: the decisions, without HTTP around them.

- The Host header must be a name of ours: a stranger's name that was made to point at this
  machine (DNS rebinding) gets nothing.
- With a token set, a request shows it as a bearer token, or as the cookie that `/login` gives
  for it.

Where they are asked for is `security`'s to say. Pages put `csrf_token(request)` into their forms,
as the field `csrf`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
import time
from typing import Literal

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser

from holdfast.errors import CrossSite, WrongHost
from holdfast.server.settings import LOOPBACK_NAMES, ServerSettings, is_loopback

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")

Way = Literal["bearer", "cookie", "open"]
"""How a request was let in; `open` where no token is asked for."""


class Gatekeeper:
    """See the module's text."""

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
