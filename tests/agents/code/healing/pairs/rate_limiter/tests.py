import pytest
from solution import RateLimiter


@pytest.fixture
def limiter():
    return RateLimiter(2, 10)


def test_calls_up_to_the_limit(limiter):
    assert [limiter.allow(at) for at in (0, 1, 2)] == [True, True, False]


def test_a_call_that_old_no_longer_counts(limiter):
    answers = [limiter.allow(at) for at in (0, 1, 10, 10.5)]
    assert answers == [True, True, True, False]


def test_what_was_refused_does_not_count(limiter):
    answers = [limiter.allow(at) for at in (0, 1, 2, 3, 12)]
    assert answers == [True, True, False, False, True]
