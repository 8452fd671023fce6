import pytest
from solution import moving_average


@pytest.mark.parametrize(
    ("numbers", "window", "expected"),
    [
        ([1, 2, 3, 4], 2, [1.5, 2.5, 3.5]),
        ([1, 2, 3], 3, [2.0]),
        ([1, 2, 3], 4, []),
        ([5], 1, [5.0]),
    ],
)
def test_means(numbers, window, expected):
    assert moving_average(numbers, window) == expected


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ValueError):
        moving_average([1], 0)
