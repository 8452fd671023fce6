"""A small sample of the weak tests of `make parity`: they are noticed, and good ones are left alone."""

from __future__ import annotations

from agents.code.parity import weak_tests


async def test_tests_that_say_nothing_of_what_is_returned_are_noticed() -> None:
    found = await weak_tests.measured(4)
    assert len(found.weak) >= 3
    assert not found.missed, found.weak
    assert len(found.suspected) < len(found.good), found.good


def test_there_are_fifty_programs_to_weaken_the_tests_of() -> None:
    programs = weak_tests.programs()
    assert len(programs) >= 50
    weak = [name for name, (_, tests) in programs.items() if weak_tests.weakened(tests) != tests]
    assert len(weak) >= 50
