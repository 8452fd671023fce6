"""Tests are corrected, never weakened."""

from __future__ import annotations

import pytest

from holdfast.agents.code import javascript
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.test_strength import corrected

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


def test_for_node_too_only_what_failed_is_replaced() -> None:
    old = 'test("a", () => { assert.equal(f(1), 3); });\ntest("b", () => { assert.ok(f(2)); });\n'
    right = old.replace("3", "2")
    assert corrected(TYPESCRIPT, old, right, ["a"]) == right
    assert corrected(TYPESCRIPT, old, right.replace('"b"', '"c"'), ["a"]) == right
    assert corrected(TYPESCRIPT, old, right.replace("assert.ok(f(2));", ""), ["a"]) == right
    assert corrected(TYPESCRIPT, old, old.replace('"a"', '"c"'), ["a"]) is None


def test_node_tests_that_can_not_be_told_apart_are_taken_whole_if_nothing_is_lost() -> None:
    old = "assert.equal(f(1), 3);\nassert.equal(f(2), 4);\n"
    assert corrected(TYPESCRIPT, old, old.replace("3", "2"), ["script"]) == old.replace("3", "2")
    assert corrected(TYPESCRIPT, old, "assert.equal(f(1), 2);\n", ["script"]) is None
    twice = 'test("a", () => { assert.equal(f(1), 3); });\n' * 2
    assert corrected(TYPESCRIPT, twice, twice.replace("3", "2"), ["a"]) == twice.replace("3", "2")
    once = 'test("a", () => { assert.equal(f(1), 2); });\n'
    assert corrected(TYPESCRIPT, twice, once, ["a"]) is None


@pytest.mark.parametrize(
    "weaker",
    [
        "assert True\n    assert 0 == 0",
        "assert double(3) == double(3)\n    assert double(0) == 0",
        "assert double(3) == 6 or True\n    assert double(0) == 0",
        "assert double(3)\n    assert double(0) == 0",
        "assert double(3) != 7\n    assert double(0) == 0",
        "return\n    assert double(3) == 6\n    assert double(0) == 0",
        "if False:\n        assert double(3) == 6\n        assert double(0) == 0",
        "try:\n        assert double(3) == 6\n        assert double(0) == 0\n"
        "    except Exception:\n        pass",
        "pytest.skip()\n    assert double(0) == 0",
        "def check():\n        pass\n    check()",
    ],
)
def test_a_test_that_looks_like_as_much_and_checks_less_is_refused(weaker: str) -> None:
    new = OLD.replace("assert double(3) == 7\n    assert double(0) == 0", weaker)
    assert corrected(PYTHON, OLD, new, ["test_three"]) is None


@pytest.mark.parametrize("mark", ["skip", "xfail", "skipif(True, reason='')"])
def test_a_test_may_not_be_silenced(mark: str) -> None:
    new = OLD.replace("def test_three", f"@pytest.mark.{mark}\ndef test_three")
    assert corrected(PYTHON, OLD, new, ["test_three"]) is None


def test_a_parametrized_test_keeps_its_cases() -> None:
    cases = '@pytest.mark.parametrize("n", [1, 2, 3])\ndef test_three(n):\n'
    old = OLD.replace("def test_three():\n", cases)
    right = old.replace("[1, 2, 3]", "[1, 2, 4]")
    assert corrected(PYTHON, old, right, ["test_three[3]"]) == right
    assert corrected(PYTHON, old, old.replace("[1, 2, 3]", "[1]"), ["test_three[3]"]) is None


def test_an_error_that_is_expected_may_not_become_any_error() -> None:
    old = OLD.replace(
        "assert double(3) == 7", "with pytest.raises(TypeError):\n        double('x')"
    )
    loose = old.replace("TypeError", "Exception")
    assert corrected(PYTHON, old, loose, ["test_three"]) is None
    right = old.replace("TypeError", "ValueError")
    assert corrected(PYTHON, old, right, ["test_three"]) == right


@pytest.mark.parametrize(
    "near", ["double(3) == pytest.approx(6)", "abs(double(3) - 6) < 1e-9", "isclose(double(3), 6)"]
)
def test_what_is_near_enough_checks_as_much_as_what_is_equal(near: str) -> None:
    new = OLD.replace("double(3) == 7", near)
    assert corrected(PYTHON, OLD, new, ["test_three"]) == new


def test_imports_come_behind_what_must_be_first() -> None:
    head = '"""Tests."""\nfrom __future__ import annotations\n'
    new = f"{head}from math import (\n    floor,\n)\n{OLD.replace('== 7', '== floor(6.5)')}"
    kept = corrected(PYTHON, f"{head}{OLD}", new, ["test_three"])
    assert kept is not None and kept.startswith(f"{head}from math import floor\nfrom solution")
    compile(kept, "test_solution.py", "exec")


@pytest.mark.parametrize(
    "text",
    [
        "assert.equal(f(\")\"), `${')'}`);",
        "assert.match(f(1), /[)/\\]]+\\)/);",
        "// a bracket ) in a comment\n  assert.equal(f(1), 2); /* } */",
        "assert.deepEqual(f({ a: [1, (2)] }), [')']);",
    ],
)
def test_brackets_in_strings_and_the_like_close_nothing(text: str) -> None:
    code = f'test("a", () => {{\n  {text}\n}});\ntest("b", () => {{}});\n'
    pieces = javascript.tests(code, "typescript")
    assert pieces is not None
    assert pieces["a"].text == code[: code.index(";\ntest(")]
