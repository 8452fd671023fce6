"""Correcting tests without weakening them.

Only tests that failed may change, none may go, and none may check less: fewer assertions, ones
that hold whatever the program does, looser ones, fewer cases. The tests that passed are kept to
the letter. Only where tests can't be told apart (asserts without functions, titles that occur
twice) is a file taken whole, and then the same is asked of all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from holdfast.agents.code import node_blocks
from holdfast.agents.code.languages import Language
from holdfast.agents.code.strength import of_node, of_python


def corrected(language: Language, old: str, new: str, failing: Sequence[str]) -> str | None:
    """The tests with the failing ones taken from `new`; None if that would weaken them."""
    if language.name != "python":
        return _corrected_node(old, new, failing)
    before, after = _parsed(old), _parsed(new)
    if before is None or after is None:
        return new if before is None and after is not None else None
    named = {name.partition("[")[0] for name in failing}
    tests, fresh = _tests(before), _tests(after)
    if named and named <= tests.keys():
        return _merged(old, new, before, after, named)
    kept = tests.keys() <= fresh.keys()
    return new if kept and of_python(after).covers(of_python(before)) else None


# --- Python: by the syntax tree ---

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def _tests(tree: ast.Module) -> dict[str, Function]:
    """Each test of a file, by name; methods with their class."""
    found: dict[str, Function] = {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            if isinstance(each, Function) and each.name.startswith("test"):
                found[f"{prefix}{each.name}"] = each
    return found


def _merged(
    old: str, new: str, before: ast.Module, after: ast.Module, failing: set[str]
) -> str | None:
    """The old file with the failing tests' lines replaced by the new ones."""
    tests, fresh = _tests(before), _tests(after)
    if not failing <= fresh.keys():
        return None
    lines, given = old.splitlines(), new.splitlines()
    for name in sorted(failing, key=lambda name: -tests[name].lineno):
        was, now = tests[name], fresh[name]
        if not of_python(now).covers(of_python(was)):
            return None
        lines[_first(was) - 1 : was.end_lineno] = given[_first(now) - 1 : now.end_lineno]
    return _with_imports(lines, before, after)


def _first(test: Function) -> int:
    return min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)])


def _with_imports(lines: list[str], before: ast.Module, after: ast.Module) -> str:
    """With the imports that the new tests have and the old ones had not, behind the docstring
    and what must come first; before the others, so that none of those is replaced."""
    known = {ast.unparse(node) for node in before.body}
    imports = [
        ast.unparse(node)
        for node in after.body
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) not in known
    ]
    missing = [line for line in imports if "__future__" not in line]
    place = 0
    for node in before.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (docstring or future):
            break
        place = node.end_lineno or place
    return "\n".join([*lines[:place], *missing, *lines[place:]]).strip("\n") + "\n"


# --- node: by the calls of `test` ---


def _corrected_node(old: str, new: str, failing: Sequence[str]) -> str | None:
    before, after = node_blocks.tests(old), node_blocks.tests(new)
    titles = {name.rpartition(" > ")[2] for name in failing}
    if before is not None and after is not None and titles and titles <= before.keys():
        if not titles <= after.keys():
            return None
        pieces = {title: after[title].text for title in titles}
        if not all(of_node(pieces[t]).covers(of_node(before[t].text)) for t in titles):
            return None
        return node_blocks.replaced(old, before, pieces, node_blocks.imports(new))
    kept = node_blocks.titles(old) <= node_blocks.titles(new)
    return new if kept and of_node(new).covers(of_node(old)) else None
