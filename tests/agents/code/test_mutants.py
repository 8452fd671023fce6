"""Mutants: programs with one small mistake, made by the syntax tree."""

from __future__ import annotations

import ast

import pytest

from agents.code.healing.pairing import Pair, pairs
from holdfast.agents.code import javascript
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.mutants import mutants

PYTHON, TYPESCRIPT = LANGUAGES["python"], LANGUAGES["typescript"]
ROTATE = '''"""Rotates: 7."""
def rotate(items: list[int], by: int = 0) -> list[int]:
    """By 3."""
    if not items:
        raise ValueError("no items, 5 at least")
    return items[-by:] + items[:-by]  # ü < 2

if __name__ == "__main__":
    print(rotate([1, 2, 3]))
'''


def test_a_mutant_is_the_program_with_one_line_changed() -> None:
    found, many = mutants(ROTATE, PYTHON, 100)
    assert len(found) == many > 8
    changed = {tuple(each.diff.splitlines()) for each in found}
    assert ("-    if not items:", "+    if items:") in changed
    assert ('-        raise ValueError("no items, 5 at least")', "+        pass") in changed
    for each in found:
        was, now = ROTATE.splitlines(), each.code.splitlines()
        assert [n for n, (a, b) in enumerate(zip(was, now, strict=True), 1) if a != b] == [
            each.line
        ]


def test_nothing_is_changed_that_no_caller_sees() -> None:
    found, _ = mutants(ROTATE, PYTHON, 100)
    assert {each.line for each in found} <= {2, 4, 5, 6}
    assert not any("# ü <= 2" in each.code or "5 at most" in each.code for each in found)


def test_which_ones_are_taken_depends_on_the_text_alone() -> None:
    few, many = mutants(ROTATE, PYTHON, 4)
    assert len(few) == 4 < many
    assert few == mutants(ROTATE, PYTHON, 4)[0]
    assert len({each.line for each in few}) == 4


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.name)
def test_every_mutant_is_a_program(pair: Pair) -> None:
    language = LANGUAGES[pair.language]
    found, _ = mutants(pair.fixed, language, 100)
    assert found
    for each in found:
        assert each.code != pair.fixed
        if language.name == "python":
            ast.parse(each.code)
        else:
            assert javascript.is_whole(each.code, language.name), each.diff


def test_types_and_imports_are_no_part_of_a_program() -> None:
    code = 'import a from "b";\ntype T = "x" | 2;\nexport const f = (n: 1 | 2): "y" => n < 1 ? "y" : "y";\n'
    found, _ = mutants(code, TYPESCRIPT, 100)
    assert found and {each.line for each in found} == {3}
    assert all('(n: 1 | 2): "y"' in each.code for each in found)


@pytest.mark.parametrize("code", ["def f(:\n", "x = 1\r\ny = x < 2\r\n", ""])
def test_what_can_not_be_read_has_no_mutants(code: str) -> None:
    assert mutants(code, PYTHON, 9) == ([], 0)


def test_code_that_is_nested_deeply_is_no_trouble() -> None:
    found, many = mutants(f"def f(x):\n    return {'x + ' * 900}1\n", PYTHON, 5)
    assert len(found) == 5 and many > 900
