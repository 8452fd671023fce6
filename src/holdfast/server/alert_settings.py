"""Who is told of what: the `[alerts]` section of the configuration."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import ConfigError

EVENTS = ("run.failed", "run.stuck", "approval.needed", "budget.warning")
WORKFLOW = "holdfast_alert"
"""The workflow whose runs tell of others; nobody is told of its own."""


@dataclass(frozen=True)
class AlertTarget:
    """Who is told: an `[alerts.to.NAME]` section."""

    kind: Literal["webhook", "slack", "email"]
    events: tuple[str, ...] = EVENTS
    workflows: tuple[str, ...] = ()
    """Names, with `*` for anything; none: all."""
    url: str = ""
    url_env: str = ""
    """The variable that has the address, where that is a secret: Slack's is."""
    secret_env: str = ""
    """webhook: the variable with the secret (`whsec_…`) that requests are signed with."""
    to: tuple[str, ...] = ()
    """email: the addresses."""
    sender: str = "holdfast@localhost"
    smtp_host: str = "localhost"
    smtp_port: int = 25
    smtp_tls: Literal["none", "starttls", "tls"] = "none"
    smtp_user: str = ""
    smtp_password_env: str = ""

    def __post_init__(self) -> None:
        for name in self.events:
            if name not in EVENTS:
                raise ConfigError(f"{name!r} is no event", hint=f"one of {', '.join(EVENTS)}")
        if self.kind == "email":
            if not self.to:
                raise ConfigError("an alert by email needs addresses", hint='to = ["a@b.example"]')
        elif bool(self.url) == bool(self.url_env):
            raise ConfigError("an alert has either url or url_env")

    def takes(self, kind: str, workflow: str | None) -> bool:
        """Whether it is told of this."""
        if kind == "test":
            return True
        if kind not in self.events or workflow == WORKFLOW:
            return False
        if not self.workflows or workflow is None:
            return True
        return any(fnmatch.fnmatchcase(workflow, each) for each in self.workflows)

    @property
    def address(self) -> str:
        """Where to post, which may be a secret."""
        return self.url or variable(self.url_env)


@dataclass(frozen=True)
class AlertSettings:
    """The `[alerts]` section."""

    base_url: str = ""
    """What links begin with: how people reach the inspector."""
    to: dict[str, AlertTarget] = field(default_factory=dict[str, AlertTarget])


def variable(name: str) -> str:
    """What a variable has that is a secret; raises ConfigError if it is not set."""
    found = os.environ.get(name, "")
    if not found:
        raise ConfigError(f"the variable {name} is not set")
    return found
