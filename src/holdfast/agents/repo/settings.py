"""The `[repo]` section: what the repo agent does unless a run says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from holdfast import config
from holdfast.sandbox.settings import BackendName
from holdfast.typed_settings import DURATION


@dataclass(frozen=True, slots=True)
class RepoSettings:
    """Settings of the repo agent."""

    model: str | None = None
    """None: what the code agent would take."""
    attempts: int = 3
    """Rounds: after each the tests are run, and what failed is told."""
    max_steps: int = 60
    """Model calls in one round."""
    max_tokens: int = 8192
    """For one reply."""
    max_time: float = field(default=3600.0, metadata=DURATION)
    """For the whole run, all its tries together."""
    budget: Decimal | None = None
    """US dollars a run may spend, its tries together; None: no limit but the gateway's."""
    test_timeout: float = field(default=300.0, metadata=DURATION)
    command_timeout: float = field(default=120.0, metadata=DURATION)
    """For one command of the agent."""
    memory: str = "2gb"
    """Of a sandbox, its files included."""
    pids: int = 256
    backend: BackendName = "auto"


def load() -> RepoSettings:
    """From `holdfast.toml` and the environment."""
    return config.section("repo", RepoSettings)
