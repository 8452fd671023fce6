from solution import merge_sorted


def test_items_of_both_are_interleaved():
    assert merge_sorted([1, 4], [2, 3, 9]) == [1, 2, 3, 4, 9]


def test_one_may_be_empty():
    assert merge_sorted([], [1]) == [1]
    assert merge_sorted([1], []) == [1]


def test_the_arguments_stay_as_they_were():
    a, b = [1, 2], [3]
    merge_sorted(a, b)
    assert (a, b) == ([1, 2], [3])
