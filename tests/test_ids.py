"""Ids: sortable by time, repeatable where randomness is handed in, else never the same."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.ids import new_id

moments = st.floats(0, 4e9)
SHAPE = re.compile("call_[0-9A-HJKMNP-TV-Z]{26}")


@settings(deadline=None)
@given(moments, moments)
def test_ids_sort_by_time(one: float, other: float) -> None:
    early, late = sorted((one, other))
    if int(early * 1000) < int(late * 1000):
        assert new_id("call", at=early) < new_id("call", at=late)


def test_the_same_time_and_randomness_make_the_same_id() -> None:
    made = new_id("run", at=1_763_000_000.123, entropy=bytes(range(10)))
    assert made == "run_01K9XFT7KV000G40R40M30E209"
    assert new_id("run", at=1_763_000_000.123, entropy=bytes(10)) != made


def test_ids_of_one_moment_differ_in_every_digit_of_their_tail() -> None:
    made = [new_id("call", at=1.0) for _ in range(2000)]
    assert len(set(made)) == len(made)
    assert all(SHAPE.fullmatch(one) for one in made)
    for place in range(-16, 0):
        assert len({one[place] for one in made}) == 32
