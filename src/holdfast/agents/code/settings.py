"""The `[code]` section: what the code agent does unless a run says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from holdfast import config
from holdfast.typed_settings import DURATION


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
    parallel_tests: int | None = None
    """Programs under test at once in a process; None: as many as there are processors."""
    memory: str = "1gb"
    pids: int = 128
    max_tokens: int = 8192
    """For one reply."""


def load() -> CodeSettings:
    """From `holdfast.toml` and the environment."""
    return config.section("code", CodeSettings)
