import pytest
from solution import topological_sort


def test_what_is_needed_comes_first():
    assert topological_sort({"c": ["b"], "b": ["a"], "a": []}) == ["a", "b", "c"]


def test_a_choice_is_made_by_the_alphabet():
    assert topological_sort({"z": [], "a": [], "m": ["z"]}) == ["a", "z", "m"]


def test_a_cycle_is_refused():
    with pytest.raises(ValueError):
        topological_sort({"a": ["b"], "b": ["a"]})
