"""Waiting for what another process or thread will do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT = 240.0
"""Seconds that something may take which takes milliseconds: the machine may be busy with all kinds of
things. Less than the suite's own limit for a test, so that what was waited for is named."""


def until(condition: Callable[[], Any], what: str = "the condition", seconds: float = LIMIT) -> Any:
    """Wait for a condition, and return what it found."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)
    return found
