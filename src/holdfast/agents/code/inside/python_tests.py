"""Instrumenting tests: each says that it was left, and each assertion that it held.

Works on the syntax tree of a module that nobody has run yet. Which tests there are is for pytest
to say, and what a failing assertion says is the doing of its rewriting, which is only added to.
Certain tests, those that pytest can't but collect, must turn up all the same: a program may have
taken them away.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.agents.code.inside import python_watch

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in",
}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CLAIMS = re.compile(r"assert|raises|warns|fail|deprecated_call|expect|check|verify", re.IGNORECASE)
_MARK = re.compile(r"(pytest\.)?mark\.\w+(\(|$)")
_MAKE_NAMES = {"globals", "setattr", "exec", "vars", "locals"}
"""By these a module may define tests that its text does not show, or take some away."""
_CLASS_SETS = {"__init__", "__new__", "__test__"}


class Tests:
    """What the text of the tests says about them."""

    def __init__(self) -> None:
        self.certain: list[str] = []
        """Tests that pytest must collect, and that are left by a `return` if they pass."""
        self.any = False
        """Whether there is something that pytest might collect; otherwise it is a script."""
        self.claims = False
        """Whether there is something that could fail them: an `assert`, a `raise`, a call."""


def instrument(tree: ast.Module) -> Tests:
    """Wrap the tests of a module, in place; what its text says about them."""
    found = Tests()
    found.claims = any(_is_claim(node) for node in ast.walk(tree))
    rebound = set(_rebound(tree))
    _wrap_all(tree.body, "", found, certain=rebound.isdisjoint(_MAKE_NAMES))
    found.certain = [name for name in found.certain if name.partition(".")[0] not in rebound]
    found.any = found.any or any(name.lower().startswith("test") for name in rebound)
    found.any = found.any or not rebound.isdisjoint(_MAKE_NAMES)
    _Calls().visit(tree)
    return found


def _rebound(tree: ast.Module) -> Iterator[str]:
    """Names that are set or deleted by anything but the definition of a function or a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and (node.id in _MAKE_NAMES or not _is_load(node)):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _wrap_all(body: Iterable[ast.stmt], prefix: str, found: Tests, certain: bool) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef):
            found.any = found.any or bool(node.bases) or node.name.startswith("Test")
            sure = certain and not prefix and _is_sure_class(node)
            _wrap_all(node.body, f"{prefix}{node.name}.", found, sure)
        elif isinstance(node, _FUNCTIONS):
            if node.name.startswith("test") and not _is_fixture(node):
                found.any = True
                name = _wrap(node, prefix)
                if certain and all(_MARK.match(ast.unparse(d)) for d in node.decorator_list):
                    found.certain.append(name)
        else:
            for inner in _bodies(node):
                _wrap_all(inner, prefix, found, certain=False)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements under an `if`, a `try`, a `with`, a loop."""
    for name in ("body", "orelse", "finalbody"):
        inner: Any = getattr(node, name, None)
        if isinstance(inner, list):
            yield cast("list[ast.stmt]", inner)
    for more in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _bodies(more)


def _is_fixture(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "fixture" in " ".join(ast.unparse(each) for each in node.decorator_list)


def _is_sure_class(node: ast.ClassDef) -> bool:
    """Whether pytest collects it, whatever happens at run time."""
    if node.decorator_list or node.keywords:
        return False
    sets = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    sets |= {each.name for each in node.body if isinstance(each, _FUNCTIONS)}
    if sets & _CLASS_SETS:
        return False
    bases = [ast.unparse(base) for base in node.bases]
    return bases == ["unittest.TestCase"] or (not bases and node.name.startswith("Test"))


def _wrap(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> str:
    """Have a test say that it was left, and whether by an error."""
    name, watch = f"{prefix}{node.name}", python_watch.NAME
    first = node.body[0]
    doc = [first] if ast.get_docstring(node, clean=False) is not None else []
    begun, guarded = _parsed(
        f"{watch}.enter({name!r})\ntry:\n    pass\nexcept BaseException:\n"
        f"    {watch}.fail({name!r})\n    raise\nelse:\n    {watch}.returned({name!r})\n"
        f"finally:\n    {watch}.leave()",
        first,
    )
    assert isinstance(guarded, ast.Try)
    # A test that returns in the middle passes over the `else`: it is put before each `return`.
    rest: ast.Module = _Returns(name).visit(ast.Module(node.body[len(doc) :], []))
    guarded.body = rest.body or guarded.body
    node.body = [*doc, begun, guarded]
    return name


class _Returns(ast.NodeTransformer):
    """Has a test say that it is left by a `return`, wherever it has one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        return [*_parsed(f"{python_watch.NAME}.returned({self._name!r})", node), node]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_claim(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    return isinstance(node, ast.Call) and _CLAIMS.search(_called(node)) is not None


class _Calls(ast.NodeTransformer):
    """Has the watch make the calls that assert something: unittest's, and pytest.raises."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = _called(node)
        if not name.startswith("assert") and name not in ("raises", "warns", "deprecated_call"):
            return node
        [made] = _parsed(f"{python_watch.NAME}.call({name!r})", node)
        assert isinstance(made, ast.Expr) and isinstance(made.value, ast.Call)
        for inner in ast.walk(made.value.func):  # an error is placed where the method's name is
            ast.copy_location(inner, node.func)
        made.value.args += [node.func, *node.args]
        made.value.keywords = node.keywords
        return made.value


# --- assertions as pytest rewrites them ---


def rewriter(base: Any) -> Any:
    """pytest's rewriting of assertions, which also tells the watch of each."""

    class Watching(base):
        def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
            made: list[ast.stmt] = base.visit_Assert(self, node)
            return _watched(made, node)

    return Watching


def _watched(made: list[ast.stmt], node: ast.Assert) -> list[ast.stmt]:
    """After the `if not …: raise` of an assertion, it held; in it, it fails."""
    place = max(
        (n for n, each in enumerate(made) if isinstance(each, ast.If) and _raises(each)), default=-1
    )
    if place < 0:
        return made
    failing = made[place]
    assert isinstance(failing, ast.If)
    failing.body[:0] = _parsed(f"{python_watch.NAME}.fails({node.lineno})", node)
    compared: ast.Compare | None = None
    tested = failing.test.operand if isinstance(failing.test, ast.UnaryOp) else None
    for each in made[:place]:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Compare):
            target = each.targets[0]
            if isinstance(target, ast.Name) and target.id == getattr(tested, "id", None):
                compared = each.value
    return [*made[: place + 1], *_held(compared, node), *made[place + 1 :]]


def _raises(statement: ast.If) -> bool:
    return bool(statement.body) and isinstance(statement.body[-1], ast.Raise)


def _held(compare: ast.Compare | None, where: ast.stmt) -> list[ast.stmt]:
    operator = _OPERATORS.get(type(compare.ops[0])) if compare and len(compare.ops) == 1 else None
    if compare is None or operator is None:
        return _parsed(f"{python_watch.NAME}.count()", where)
    [told] = _parsed(f"{python_watch.NAME}.compared({operator!r})", where)
    assert isinstance(told, ast.Expr) and isinstance(told.value, ast.Call)
    told.value.args += [_again(compare.left, where), _again(compare.comparators[0], where)]
    return [told]


def _again(value: ast.expr, where: ast.stmt) -> ast.expr:
    """The value once more, if reading it again changes nothing."""
    again: ast.expr = ast.Constant(None)
    if isinstance(value, ast.Name):
        again = ast.Name(value.id, ast.Load())
    elif isinstance(value, ast.Constant):
        again = ast.Constant(value.value)
    return ast.copy_location(again, where)


# --- assertions of a script, which pytest never sees ---


def compiled_script(tree: ast.Module, name: str) -> CodeType:
    """The code of tests that are in no function, its assertions watched."""
    _Asserts().visit(tree)
    ast.fix_missing_locations(tree)  # here nothing is pytest's: all that was there has its place
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
