"""Fixtures of tests whose workflows have names that other tests use too."""

import logging
from collections.abc import Iterator

import pytest

from holdfast.runtime.definitions import registered


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Their mishaps are on purpose."""
    caplog.set_level(logging.CRITICAL, logger="holdfast")


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Workflows of a test are known during it alone."""
    before = dict(registered())
    registered().clear()
    yield
    registered().clear()
    registered().update(before)
