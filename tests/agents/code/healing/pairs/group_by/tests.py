from solution import group_by


def test_items_with_the_same_key_are_together():
    assert group_by([1, 2, 3, 4], lambda n: n % 2) == {1: [1, 3], 0: [2, 4]}


def test_calls_are_independent():
    group_by(["x"], len)
    assert group_by(["ab", "c"], len) == {2: ["ab"], 1: ["c"]}
