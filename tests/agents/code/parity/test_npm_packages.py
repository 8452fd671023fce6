"""A small sample of `make parity` for node: test modules nobody here wrote, by node and by us."""

from __future__ import annotations

import pytest

from agents.code.parity import npm_packages


@pytest.mark.timeout(1200)
async def test_real_test_modules_for_node_are_judged_as_by_node_with_and_without_a_bug() -> None:
    tally = npm_packages.Tally()
    try:
        await npm_packages.tried("find-my-way", 3, tally)
    except npm_packages.OutOfReach as error:
        pytest.skip(f"the package registry is out of reach: {error}")
    assert not tally.disagreeing, tally.disagreeing
    assert tally.modules >= 2
    assert tally.isolated >= 1
