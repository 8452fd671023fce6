from solution import deep_merge


def test_dicts_are_merged_at_every_depth():
    merged = deep_merge({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 3}}})
    assert merged == {"a": {"b": {"c": 3, "d": 2}}}


def test_over_wins():
    assert deep_merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}


def test_the_arguments_stay_as_they_were():
    base = {"a": {"b": 1}}
    deep_merge(base, {"a": {"c": 2}})
    assert base == {"a": {"b": 1}}
