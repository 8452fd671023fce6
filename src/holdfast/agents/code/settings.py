"""The `[code]` section: what the code agent does unless a run says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from holdfast import config
from holdfast.tables import DURATION


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """Settings of the code agent."""

    model: str | None = None
    """Writes the program; None: the best that is usable here."""
    test_model: str | None = None
    """Writes the tests; None: the same."""
    attempts: int = 3
    budget: Decimal | None = None
    """US dollars a run may spend; None: no limit but those of the gateway."""
    test_timeout: float = field(default=30.0, metadata=DURATION)
    """For one run of the tests."""
    memory: str = "1gb"
    pids: int = 128
    max_tokens: int = 8192
    """For one reply."""
    test_changes: int = 1
    """How often wrong tests may be corrected in a run."""


def load() -> CodeSettings:
    """From `holdfast.toml` and the environment."""
    return config.section("code", CodeSettings)
