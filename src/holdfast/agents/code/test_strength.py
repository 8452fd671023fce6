"""How much tests check, as far as their text tells; and correcting them without weakening them.

An assertion counts if it says something about a value that is worked out, and is reached. What
holds by itself (`assert True`, `x == x`, `… or True`), comes after a `return` or is swallowed by
an `except` does not.

Of corrected tests, only those that failed may change, none may go, and none may check less: fewer
assertions, ones that hold whatever the program does, looser ones, fewer cases. The tests that
passed are kept to the letter. Only where tests can't be told apart (asserts without functions,
titles that occur twice) is a file taken whole, and then the same is asked of all of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast.agents.code import javascript
from holdfast.agents.code.languages import Language
from holdfast.agents.code.records import Strength

# --- Python ---

_SWALLOWING = ("AssertionError", "Exception", "BaseException")
_EXACT_METHODS = re.compile(r"assert(\w*Equals?|Is|IsNone|True|False|Raises\w*|\w*Match)$")
_LOOSE_METHODS = re.compile(r"assert(Not\w*|IsNot\w*|IsInstance)$")


def of_python(tree: ast.AST) -> Strength:
    """Of a test, or of a whole file."""
    found = list(_reached(tree))
    decorators = [d for node in ast.walk(tree) for d in getattr(node, "decorator_list", [])]
    silenced = any(re.search(r"\b(skip|skipif|xfail)", ast.unparse(d)) for d in decorators)
    return Strength(len(found), sum(map(_is_exact, found)), _cases(decorators), silenced)


def _reached(node: ast.AST) -> Iterator[ast.expr]:
    """The conditions and calls by which the statements under a node assert something."""
    for field in ("body", "orelse", "finalbody"):
        statements: Any = getattr(node, field, [])
        if not isinstance(statements, list):
            continue  # of a lambda
        for statement in cast("list[ast.stmt]", statements):
            yield from _asserted(statement)
            if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                break


def _asserted(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Assert):
        if not _holds_anyway(statement.test):
            yield statement.test
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if _called(statement.value).startswith("assert") and not _constant(statement.value):
            yield statement.value
    elif isinstance(statement, ast.With | ast.AsyncWith):
        for item in statement.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and re.search(r"[rR]aises", _called(call)):
                yield call
        yield from _reached(statement)
    elif isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant):
        branch = statement.body if statement.test.value else statement.orelse
        yield from _reached(ast.Module(branch, []))
    elif not (isinstance(statement, ast.Try) and any(map(_swallows, statement.handlers))):
        yield from _reached(statement)


def _swallows(handler: ast.ExceptHandler) -> bool:
    if any(isinstance(node, ast.Raise) for node in ast.walk(handler)):
        return False
    caught = "BaseException" if handler.type is None else ast.unparse(handler.type)
    return any(name in caught for name in _SWALLOWING)


def _holds_anyway(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(isinstance(v, ast.Constant) and v.value for v in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        same = ast.dump(test.left) == ast.dump(test.comparators[0])
        if same and isinstance(test.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE):
            return True
    return _constant(test)


def _constant(node: ast.AST) -> bool:
    """Whether nothing in it is worked out by anything but the text itself."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return not [name for name in names if name.id not in ("self", "pytest")]


def _is_exact(asserted: ast.expr) -> bool:
    if isinstance(asserted, ast.Call) and "aises" in _called(asserted):
        kinds = [ast.unparse(each) for each in asserted.args[:1]]
        return not any(kind in _SWALLOWING for kind in kinds)
    if isinstance(asserted, ast.Call):
        name = _called(asserted)
        exact = name == "isclose" or _EXACT_METHODS.match(name) is not None
        return exact and not _LOOSE_METHODS.match(name)
    if isinstance(asserted, ast.UnaryOp):
        return isinstance(asserted.op, ast.Not)
    if isinstance(asserted, ast.BoolOp):
        return isinstance(asserted.op, ast.And) and any(map(_is_exact, asserted.values))
    if not isinstance(asserted, ast.Compare):
        return False
    left = asserted.left
    near = isinstance(left, ast.Call) and _called(left) == "abs"
    return isinstance(asserted.ops[0], (ast.Lt | ast.LtE) if near else (ast.Eq | ast.Is))


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _cases(decorators: list[ast.expr]) -> int:
    found = 0
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and _called(decorator) == "parametrize":
            values = decorator.args[1] if len(decorator.args) > 1 else None
            found += len(values.elts) if isinstance(values, ast.List | ast.Tuple) else 0
    return found


# --- corrected tests ---


def corrected(language: Language, old: str, new: str, failing: Sequence[str]) -> str | None:
    """The tests with the failing ones taken from `new`; None if that would weaken them."""
    if language.name != "python":
        return _corrected_javascript(language.name, old, new, failing)
    before, after = _parsed(old), _parsed(new)
    if before is None or after is None:
        return new if before is None and after is not None else None
    named = {name.partition("[")[0] for name in failing}
    tests, fresh = _tests(before), _tests(after)
    if named and named <= tests.keys():
        return _merged(old, new, before, after, named)
    kept = tests.keys() <= fresh.keys()
    return new if kept and of_python(after).covers(of_python(before)) else None


def extended(language: Language, old: str, new: str) -> str | None:
    """The tests to the letter, with those of `new` that they lack; None if there are none."""
    if language.name != "python":
        return javascript.extended(old, language.name, new)
    before, after = _parsed(old), _parsed(new)
    if before is None or after is None:
        return None
    known = language.defines(old)
    added = [
        node
        for node in after.body
        if isinstance(node, Function | ast.ClassDef) and node.name not in known
    ]
    if not any(node.name.lower().startswith("test") for node in added):
        return None
    given = new.splitlines()
    lines = old.rstrip().splitlines()
    for node in added:
        lines += ["", "", *given[_first(node) - 1 : node.end_lineno]]
    return _with_imports(lines, before, after)


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


def _first(test: Function | ast.ClassDef) -> int:
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


# --- JavaScript: by its syntax tree, see javascript.py ---


def _corrected_javascript(
    dialect: javascript.Dialect, old: str, new: str, failing: Sequence[str]
) -> str | None:
    before, after = javascript.tests(old, dialect), javascript.tests(new, dialect)
    titles = {name.rpartition(" > ")[2] for name in failing}
    if before is not None and after is not None and titles and titles <= before.keys():
        if not titles <= after.keys():
            return None
        if not all(after[title].strength.covers(before[title].strength) for title in titles):
            return None
        texts = {title: after[title].text for title in titles}
        return javascript.replaced(old, dialect, before, texts, new)
    kept = javascript.titles(old, dialect) <= javascript.titles(new, dialect)
    stronger = javascript.strength(new, dialect).covers(javascript.strength(old, dialect))
    return new if kept and stronger else None
