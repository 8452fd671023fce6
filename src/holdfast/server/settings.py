"""The server's settings: where it listens, who may come in, and how much of it.

They are the `[server]` section of the configuration. No application is made of settings that
would leave it open: a server that others can reach has a token.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from holdfast.errors import ConfigError
from holdfast.server.webhook_signatures import WebhookSource
from holdfast.typed_settings import DURATION

DEFAULT_PORT = 7420
MIN_TOKEN = 16
"""Characters: less can be guessed."""
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


@dataclass(frozen=True)
class ServerSettings:
    """How the server behaves. The defaults suit one machine and its own users."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    """Who has it may do everything. Required where others than this machine can reach us."""
    require_token: bool = False
    """Do not start without a token, whoever can reach us."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call us by, besides loopback's, our address and IP literals."""
    sandbox_domain: str = "localhost"
    """Where names of sandboxes' ports are: every name below it must lead to us."""
    max_body: int = 2 * 1024 * 1024
    """The largest request body, in bytes."""
    body_seconds: float = field(default=30.0, metadata=DURATION)
    """How long a client may take to send its request."""
    header_seconds: float = field(default=15.0, metadata=DURATION)
    """How long a client may take to send the head of its request."""
    requests_per_minute: int | None = None
    """Per client; 0 is no limit. By default none on loopback, and 600 beyond."""
    login_seconds: float = field(default=7 * 86400.0, metadata=DURATION)
    """How long a browser stays logged in."""
    keep_alive_seconds: float = field(default=15.0, metadata=DURATION)
    """A silent event stream says so often that it is still there."""
    stall_seconds: float = field(default=60.0, metadata=DURATION)
    """A client that takes nothing of its event stream for so long is let go."""
    max_streams: int = 1000
    """Event streams open at once."""
    webhooks: dict[str, WebhookSource] = field(default_factory=dict[str, WebhookSource])
    """Whose signed webhooks are taken, at `/hooks/from/NAME`."""
    max_backlog: int = 0
    """How many runs may be pending or queued before a start is refused; 0 is no limit."""
    drain_seconds: float = field(default=5.0, metadata=DURATION)
    """How long requests under way may take to finish when the server is stopped."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"{self.port} is no port", hint="0 takes any free one")
        for name in ("max_body", "body_seconds", "header_seconds", "keep_alive_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise ConfigError(
                f"the token has {len(self.token)} characters: too few to be safe",
                hint=f"at least {MIN_TOKEN}; `openssl rand -hex 24` makes one",
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("the token has characters that HTTP headers can't carry")

    def check_reach(self) -> None:
        """Raises ConfigError for a server that others can reach and everybody may use."""
        if self.token is None and self.require_token:
            raise ConfigError(
                "[server] require_token is set, and there is no token",
                hint="set HOLDFAST_SERVER_TOKEN (`openssl rand -hex 24` makes one)",
            )
        if self.token is None and not self.is_private:
            raise ConfigError(
                f"a server that others can reach ({self._reachable_by}) needs a token",
                hint="set HOLDFAST_SERVER_TOKEN (`openssl rand -hex 24` makes one), or listen on "
                "127.0.0.1",
            )

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach us: by our address, and by the names we answer to."""
        return is_loopback(self.host) and all(is_loopback(name) for name in self.allowed_hosts)

    @property
    def _reachable_by(self) -> str:
        names = (self.host, *self.allowed_hosts)
        return ", ".join(name for name in names if not is_loopback(name))

    @property
    def rate(self) -> int:
        """Requests per minute and client; 0 is no limit."""
        if self.requests_per_minute is not None:
            return self.requests_per_minute
        return 0 if self.is_private else 600

    @property
    def url(self) -> str:
        """Where a browser on this machine finds us."""
        host = self.host
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 - recognized, not bound
            host = "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own, for nobody else to reach."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES
