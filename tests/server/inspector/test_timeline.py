"""The timeline's arithmetic: order is kept, long gaps are folded, everything can be seen."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.server.inspector.timeline import (
    FOLDS_WIDTH,
    MIN_WIDTH,
    MOST_FOLDS,
    axis_of,
    busy_seconds,
)

SPANS = st.lists(
    st.tuples(st.floats(0, 1e5), st.floats(0, 1e4)).map(lambda found: (found[0], sum(found))),
    max_size=40,
)


def test_time_is_drawn_to_scale_where_something_is_done_throughout() -> None:
    axis = axis_of(0, 10, [(0, 5), (5, 10)])
    assert axis.folds == []
    assert [axis.place(at) for at in (0, 2.5, 5, 10)] == [0, 25, 50, 100]


def test_a_wait_of_hours_is_folded_and_says_how_long_it_was() -> None:
    axis = axis_of(0, 7266, [(0, 30), (7230, 7266)])
    (fold,) = axis.folds
    assert (fold.begin, fold.end, fold.label) == (30, 7230, "2 h")
    assert fold.right - fold.left < 10
    # What is left of the width belongs to the work, to scale.
    before, after = axis.place(30), 100 - axis.place(7230)
    assert abs(before / 30 - after / 36) < 0.01


def test_a_short_pause_is_not_folded() -> None:
    assert axis_of(0, 20, [(0, 9), (10, 20)]).folds == []
    assert axis_of(0, 2.5, [(0, 1), (1.9, 2.5)]).folds == []


def test_a_run_that_only_waits_is_drawn_as_it_is() -> None:
    axis = axis_of(100, 4000, [])
    assert axis.folds == []
    assert axis.place(2050) == 50


def test_gaps_between_parallel_steps_are_those_in_which_none_runs() -> None:
    axis = axis_of(0, 1000, [(0, 500), (10, 20), (480, 510), (990, 1000)])
    assert [(fold.begin, fold.end) for fold in axis.folds] == [(510, 990)]


def test_a_bar_is_wide_enough_to_be_seen_and_stays_on_the_drawing() -> None:
    axis = axis_of(0, 1000, [(0, 1000)])
    for at in (0.0, 500.0, 1000.0):
        piece = axis.piece(at, at, "work")
        assert piece.width == MIN_WIDTH
        assert 0 <= piece.left <= 100 - MIN_WIDTH


def test_ticks_are_round_and_apart() -> None:
    ticks = axis_of(1000, 1047, [(1000, 1047)]).ticks()
    assert [tick.label for tick in ticks] == ["0", "10 s", "20 s", "30 s", "40 s"]
    assert all(other.at - one.at >= 9 for one, other in pairwise(ticks))


def test_ticks_behind_a_fold_tell_the_time_since_the_beginning() -> None:
    labels = [tick.label for tick in axis_of(0, 7266, [(0, 30), (7230, 7266)]).ticks()]
    assert labels[-1] == "2:01:00"


def test_busy_time_counts_what_is_parallel_once() -> None:
    assert busy_seconds([(0, 10), (5, 12), (20, 21)]) == 13
    assert busy_seconds([]) == 0


@given(SPANS, st.floats(0.001, 1e6))
@example([(0.0, 1e-09)], 129.0)
def test_an_axis_keeps_the_order_of_time(spans: list[tuple[float, float]], length: float) -> None:
    axis = axis_of(0, length, [span for span in spans if span[1] <= length])
    assert axis.begin == 0
    assert axis.end >= length
    assert len(axis.folds) <= MOST_FOLDS
    assert sum(fold.right - fold.left for fold in axis.folds) <= FOLDS_WIDTH + 1e-6
    for one, other in pairwise(axis.stretches):
        assert one.end == other.begin
        assert abs(one.right - other.left) < 1e-6
    moments = [length * part / 50 for part in range(51)]
    places = [axis.place(at) for at in moments]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)
