import pytest
from solution import percentile


def test_the_ends():
    assert percentile([3, 1, 2], 0) == 1
    assert percentile([3, 1, 2], 100) == 3


def test_between_two_numbers():
    assert percentile([10, 20, 30, 40], 25) == pytest.approx(17.5)


def test_no_numbers():
    with pytest.raises(ValueError, match="no numbers"):
        percentile([], 50)
