from solution import flatten


def test_nested_lists_become_one():
    assert flatten([1, [2, (3, [4])], []]) == [1, 2, 3, 4]


def test_strings_are_items():
    assert flatten(["ab", ["c"]]) == ["ab", "c"]


def test_nothing_stays_nothing():
    assert flatten([]) == []
