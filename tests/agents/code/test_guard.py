"""Tests are corrected, never weakened."""

from __future__ import annotations

from holdfast.agents.code.guard import corrected
from holdfast.agents.code.languages import LANGUAGES

PYTHON, TYPESCRIPT = LANGUAGES["python"], LANGUAGES["typescript"]
OLD = """\
from solution import double


def test_two():
    assert double(2) == 4


def test_three():
    assert double(3) == 7
    assert double(0) == 0
"""


def test_a_failing_test_is_replaced_and_the_others_stay_to_the_letter() -> None:
    new = OLD.replace("double(3) == 7", "double(3) == 6").replace("double(2) == 4", "True")
    kept = corrected(PYTHON, OLD, new, ["test_three"])
    assert kept == OLD.replace("double(3) == 7", "double(3) == 6")


def test_a_test_that_asserts_less_than_before_is_refused() -> None:
    new = OLD.replace("    assert double(3) == 7\n", "")
    assert corrected(PYTHON, OLD, new, ["test_three"]) is None


def test_a_failing_test_may_not_go() -> None:
    new = OLD[: OLD.index("def test_three")]
    assert corrected(PYTHON, OLD, new, ["test_three"]) is None


def test_a_parametrized_test_is_known_by_its_function() -> None:
    new = OLD.replace("double(3) == 7", "double(3) == 6")
    assert corrected(PYTHON, OLD, new, ["test_three[1]"]) == new


def test_methods_of_a_class_are_replaced_as_well() -> None:
    old = "class TestDouble:\n    def test_it(self):\n        assert 1 == 2\n\n    x = 1\n"
    new = "class TestDouble:\n    def test_it(self):\n        assert 2 == 2\n"
    kept = corrected(PYTHON, old, new, ["TestDouble.test_it"])
    assert kept == old.replace("1 == 2", "2 == 2")


def test_an_import_that_the_new_test_needs_comes_along() -> None:
    new = "import math\n" + OLD.replace("double(3) == 7", "double(3) == math.floor(6.5)")
    kept = corrected(PYTHON, OLD, new, ["test_three"])
    assert kept is not None and kept.startswith("import math\n")


def test_asserts_without_functions_are_taken_whole_if_they_are_as_many() -> None:
    old = "from solution import double\nassert double(2) == 5\nassert double(1) == 2\n"
    assert corrected(PYTHON, old, old.replace("5", "4"), ["script"]) == old.replace("5", "4")
    assert corrected(PYTHON, old, "assert True\n", ["script"]) is None


def test_for_node_titles_and_the_number_of_assertions_are_held_against_the_old() -> None:
    old = 'test("a", () => { assert.equal(f(1), 3); });\ntest("b", () => { assert.ok(f(2)); });\n'
    assert corrected(TYPESCRIPT, old, old.replace("3", "2"), ["a"]) == old.replace("3", "2")
    assert corrected(TYPESCRIPT, old, old.replace('"b"', '"c"'), ["a"]) is None
    assert corrected(TYPESCRIPT, old, old.replace("assert.ok(f(2));", ""), ["a"]) is None
