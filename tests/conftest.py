"""Fixtures that every test may use."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import parts_tested
from holdfast.runtime.definitions import registered
from holdfast.testing import Harness

# A shell that runs the suite in the background has Ctrl-C ignored, for all that comes of it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where compiled modules may not be kept, each of the thousand processes that the tests start would
# compile Holdfast and its libraries anew: half of what such a process costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes is the machine's affair: with its cores busy, seconds.
settings.register_profile(
    "at any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("at any pace")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := parts_tested.told(terminalreporter.stats):
        terminalreporter.section("parts tested")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def known_workflows() -> Iterator[None]:
    """A workflow that a test defines is forgotten with it, and hides no other of its name."""
    before = dict(registered())
    yield
    registered().clear()
    registered().update(before)


@pytest.fixture(params=[False, True], ids=["in memory", "replayed after every event"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """A Holdfast of the test's own; everything must hold also if each event is a recovery."""
    async with Harness(replay_always=request.param) as opened:
        yield opened
