"""A small sample of `make parity`: test modules nobody here wrote, by pytest and by our runner."""

from __future__ import annotations

import pytest

from agents.code.parity import registry, sources

SAMPLE = {"inflection": 1, "humanize": 2, "toolz": 4}


@pytest.mark.timeout(1200)
async def test_real_test_modules_are_judged_as_by_pytest_with_and_without_a_bug() -> None:
    tally = registry.Tally()
    for package, most in SAMPLE.items():
        try:
            await registry.tried(package, most, tally)
        except sources.OutOfReach as error:
            pytest.skip(f"the package index is out of reach: {error}")
    assert not tally.disagreeing, tally.disagreeing
    assert tally.modules >= 5
    assert tally.caught >= 2
