"""Fixtures that every test may use."""

from collections.abc import AsyncIterator

import hypothesis  # noqa: F401 - its pytest plugin imports it at the first failure: too late
import pytest

from holdfast.testing import Harness


@pytest.fixture(params=[False, True], ids=["in memory", "replayed after every event"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """A Holdfast of the test's own; everything must hold also if each event is a recovery."""
    async with Harness(replay_always=request.param) as opened:
        yield opened
