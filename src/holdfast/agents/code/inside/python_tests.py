"""Instrumenting tests: each says that it was left, and each assertion that it held.

Works on the syntax tree of a module that nobody has run yet. What a failing assertion says is
pytest's doing, which is why its rewriting is kept and only its result is watched.
"""

from __future__ import annotations

import ast
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.agents.code.inside import python_watch

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in",
}  # fmt: skip
_BODIES = ("body", "orelse", "finalbody")


def instrument(tree: ast.Module) -> list[str]:
    """Wrap the tests of a module, in place; the names of those that must be run."""
    expected: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _holds_tests(node):
            expected += [_wrap(each, f"{node.name}.") for each in node.body if _is_test(each)]
        elif _is_test(node):
            expected.append(_wrap(node, ""))
    _Calls().visit(tree)
    ast.fix_missing_locations(tree)
    return expected


def _is_test(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    return node.name.startswith("test") and "fixture" not in decorators


def _holds_tests(node: ast.ClassDef) -> bool:
    bases = " ".join(ast.unparse(base) for base in node.bases)
    return node.name.startswith("Test") or "TestCase" in bases


def _wrap(node: ast.stmt, prefix: str) -> str:
    """Have a test say that it was left, and whether by an error."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    name, watch = f"{prefix}{node.name}", python_watch.NAME
    begun, guarded = _parsed(
        f"{watch}.enter({name!r})\ntry:\n    pass\nexcept BaseException:\n"
        f"    {watch}.fail({name!r})\n    raise\nfinally:\n    {watch}.leave({name!r})",
        node.body[0],
    )
    assert isinstance(guarded, ast.Try)
    guarded.body = node.body
    node.body = [begun, guarded]
    return name


class _Calls(ast.NodeTransformer):
    """Has the watch make the calls that assert something: unittest's, and pytest.raises."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if not name.startswith("assert") and name not in ("raises", "fail"):
            return node
        [made] = _parsed(f"{python_watch.NAME}.call({name!r})", node)
        assert isinstance(made, ast.Expr) and isinstance(made.value, ast.Call)
        made.value.args += [node.func, *node.args]
        made.value.keywords = node.keywords
        return made.value


# --- assertions as pytest has rewritten them ---


def watch_rewritten(tree: ast.Module) -> None:
    """Say that an assertion held after each `if not …: raise` that pytest made of one."""
    for node in ast.walk(tree):
        for field in _BODIES:
            body: Any = getattr(node, field, None)
            if isinstance(body, list):
                body[:] = _watched(cast("list[Any]", body))


def _watched(body: list[Any]) -> list[Any]:
    made: list[Any] = []
    compares: dict[str, ast.Compare] = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Compare):
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                compares[target.id] = statement.value
        made.append(statement)
        if isinstance(statement, ast.If) and (tested := _asserted_by(statement)):
            told = f"{python_watch.NAME}.fails({statement.lineno})"
            statement.body[:0] = _parsed(told, statement)
            made += _held(compares.get(tested), statement)
    return made


def _asserted_by(statement: ast.If) -> str:
    """The name of the value that is asserted, if pytest made the statement of an assertion."""
    if not isinstance(statement.test, ast.UnaryOp) or not isinstance(statement.body[-1], ast.Raise):
        return ""
    tested = statement.test.operand
    if isinstance(tested, ast.Name) and tested.id.startswith("@py_assert"):
        return tested.id
    return ""


def _held(compare: ast.Compare | None, where: ast.stmt) -> list[ast.stmt]:
    operator = _OPERATORS.get(type(compare.ops[0])) if compare and len(compare.ops) == 1 else None
    if compare is None or operator is None:
        return _parsed(f"{python_watch.NAME}.count()", where)
    [told] = _parsed(f"{python_watch.NAME}.compared({operator!r})", where)
    assert isinstance(told, ast.Expr) and isinstance(told.value, ast.Call)
    told.value.args += [_again(compare.left), _again(compare.comparators[0])]
    return [told]


def _again(value: ast.expr) -> ast.expr:
    """The value once more, if reading it again changes nothing."""
    if isinstance(value, ast.Name | ast.Constant):
        return value
    return ast.copy_location(ast.Constant(None), value)


# --- assertions of a script, which pytest never sees ---


def compiled_script(tree: ast.Module, name: str) -> CodeType:
    """The code of tests that are in no function, its assertions watched."""
    _Asserts().visit(tree)
    ast.fix_missing_locations(tree)
    return compile(tree, name, "exec", dont_inherit=True)


class _Asserts(ast.NodeTransformer):
    """`assert a == b` becomes `if not (l := a) == (r := b): fails, raise`, and `compared(l, r)`."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        watch, told = python_watch.NAME, "count()"
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            operator = _OPERATORS.get(type(test.ops[0]))
            if operator is not None:
                test.left = _kept("__left__", test.left)
                test.comparators = [_kept("__right__", test.comparators[0])]
                told = f"compared({operator!r}, __left__, __right__)"
        failing, after = _parsed(
            f"if not None:\n    {watch}.fails({node.lineno})\n    raise AssertionError\n"
            f"{watch}.{told}",
            node,
        )
        assert isinstance(failing, ast.If) and isinstance(failing.test, ast.UnaryOp)
        failing.test.operand = test
        if node.msg is not None:
            raised = failing.body[-1]
            assert isinstance(raised, ast.Raise) and raised.exc is not None
            raised.exc = ast.copy_location(ast.Call(raised.exc, [node.msg], []), node)
        return [failing, after]


def _kept(name: str, value: ast.expr) -> ast.expr:
    """The value, and a name for it: `(name := value)`."""
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.NamedExpr(target, value), value)


def _parsed(source: str, where: ast.AST) -> list[ast.stmt]:
    """Statements of ours, which errors place where they were put in.

    Each gets all four numbers. pytest gives its own nodes a beginning and no end, and to fill in
    ends from the nodes around (`ast.fix_missing_locations`) makes some that end before they begin.
    """
    made = ast.parse(source).body
    line, column = getattr(where, "lineno", 1), getattr(where, "col_offset", 0)
    end, end_column = getattr(where, "end_lineno", None), getattr(where, "end_col_offset", None)
    if end is None or end_column is None:
        end, end_column = line, column
    for statement in made:
        for inner in ast.walk(statement):
            if "lineno" in inner._attributes:
                placed = cast("ast.expr", inner)
                placed.lineno, placed.col_offset = line, column
                placed.end_lineno, placed.end_col_offset = end, end_column
    return made
