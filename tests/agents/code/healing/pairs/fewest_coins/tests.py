from solution import fewest_coins


def test_large_coins_are_good():
    assert fewest_coins(63, [1, 5, 10, 25]) == 6


def test_the_largest_coin_is_not_always_right():
    assert fewest_coins(6, [1, 3, 4]) == 2


def test_what_cannot_be_paid():
    assert fewest_coins(3, [2]) is None


def test_nothing_needs_no_coin():
    assert fewest_coins(0, [5]) == 0
