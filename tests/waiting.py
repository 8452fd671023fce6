"""Waiting for what another process or thread will do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

LIMIT = 240.0
"""Seconds that something may take which takes milliseconds: the machine may be busy with all kinds of
things. Less than the suite's own limit for a test, so that what was waited for is named."""


def pauses() -> Iterator[float]:
    """How long to wait before each look: soon at first, then less often, for to look costs something."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.3, 0.1)


def until(condition: Callable[[], Any], what: str = "the condition", seconds: float = LIMIT) -> Any:
    """Wait for a condition, and return what it found."""
    deadline, pause = time.monotonic() + seconds, pauses()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(next(pause))
    return found
