"""Run test_solution.py against solution.py and write a sealed report. Copied into the sandbox.

Reads {"nonce", "limit"} from stdin. Every test function is wrapped, in memory and behind the
solution's back, so that it says when it was left and how: a runner that was tampered with, a
test that never ran or an early exit leaves a gap. The report is sealed with the nonce, which
is in no file, argument or variable of the environment.
"""

from __future__ import annotations

import ast
import builtins
import faulthandler
import hmac
import importlib
import json
import os
import secrets
import sys
import traceback
from collections.abc import Callable
from typing import Any

TESTS = "test_solution.py"
MOST_TEXT = 4000
MOST_TESTS = 50
WATCH = f"__watch_{secrets.token_hex(8)}__"
"""A name nobody can know before the run."""

Report = dict[str, Any]


def main() -> None:
    given = json.loads(sys.stdin.readline())
    seal = hmac.new(given["nonce"].encode(), digestmod="sha256")
    sys.stdin.close()
    sys.stdin = open(os.devnull)  # what the code reads is nothing, not what we were told
    where = os.getcwd()
    sys.path.insert(0, where)
    sys.dont_write_bytecode = True
    # On a descriptor of its own: where a program hangs is to be seen whatever it did to stderr.
    faulthandler.dump_traceback_later(given["limit"], file=os.fdopen(os.dup(2), "w"))
    write = _writer(seal, os.path.join(where, ".report"))
    del given, seal
    with open(os.path.join(where, TESTS), encoding="utf-8") as file:
        source = file.read()
    write(_run(source, where))


def _writer(seal: hmac.HMAC, path: str) -> Callable[[Report], None]:
    """Binds what is needed at the end now, before anybody can replace it."""
    dumps, copy, opener, flush, leave = json.dumps, seal.copy, open, sys.stdout.flush, os._exit

    def write(report: Report) -> None:
        flush()
        body = dumps(report).encode()
        sealed = copy()
        sealed.update(body)
        with opener(path, "wb") as file:
            file.write(sealed.hexdigest().encode() + b"\n" + body)
        leave(0 if report["passed"] else 1)

    return write


def _run(source: str, where: str) -> Report:
    report: Report = {"passed": False, "ran": [], "failures": [], "asserts": 0, "broken": None}
    try:
        tree = ast.parse(source, TESTS)
    except (SyntaxError, ValueError) as error:
        report["broken"] = _broken("tests", _text(error))
        return report
    watch = Watch()
    expected = instrument(tree)
    try:
        importlib.import_module("solution")
    except BaseException as error:  # the code under test may raise anything
        report["broken"] = _broken("code", _text(error))
        return report
    if expected:
        _run_functions(watch, report, tree, where)
    else:
        _run_script(watch, report, tree, source)
    report["ran"] = sorted(watch.left - watch.failed)
    report["asserts"] = watch.asserts
    missing = [name for name in expected if name not in report["ran"]]
    report["missing"] = missing[:MOST_TESTS]
    report["passed"] = not (report["failures"] or report["broken"] or missing) and watch.asserts > 0
    return report


class Watch:
    """Told by the instrumented tests what happens in them."""

    def __init__(self) -> None:
        self.left: set[str] = set()
        self.failed: set[str] = set()
        self.asserts = 0

    def leave(self, name: str) -> None:
        self.left.add(name)

    def fail(self, name: str) -> None:
        self.failed.add(name)

    def count(self) -> None:
        self.asserts += 1

    def compared(self, left: object, right: object) -> None:
        """After `assert left == right` held: neither may be equal to just anything."""
        __tracebackhide__ = True  # pytest leaves this frame out
        self.asserts += 1
        stranger = object()
        for one in (left, right):
            if type(one).__module__ not in ("solution", TESTS[:-3]):
                continue
            try:
                always = bool(one == stranger)
            except Exception:  # it can't be compared with a stranger: that is no cheating
                always = False
            if always:
                raise AssertionError(f"{type(one).__name__} claims to be equal to anything")


# --- instrumenting the tests ---


def instrument(tree: ast.Module) -> list[str]:
    """Wrap the tests of a module, in place; the names of those that must be run."""
    expected: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _holds_tests(node):
            expected += [_wrap(each, f"{node.name}.") for each in node.body if _is_test(each)]
        elif _is_test(node):
            expected.append(_wrap(node, ""))
    _Asserts().visit(tree)
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
    name = f"{prefix}{node.name}"
    guarded = ast.parse(
        f"try:\n    pass\nexcept BaseException:\n    {WATCH}.fail({name!r})\n    raise\n"
        f"finally:\n    {WATCH}.leave({name!r})"
    ).body[0]
    assert isinstance(guarded, ast.Try)
    for inner in ast.walk(guarded):  # errors are told with the lines of the file
        if "lineno" in inner._attributes:
            ast.copy_location(inner, node.body[0])
    guarded.body = node.body
    node.body = [guarded]
    return name


class _Asserts(ast.NodeTransformer):
    """Counts every assertion that held, and looks twice at what is equal."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        told = f"{WATCH}.count()"
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            test.left = _kept("__left__", test.left)
            test.comparators = [_kept("__right__", test.comparators[0])]
            told = f"{WATCH}.compared(__left__, __right__)"
        after = ast.parse(told).body[0]
        for inner in ast.walk(after):
            if "lineno" in inner._attributes:
                ast.copy_location(inner, node)
        return [node, after]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if not name.startswith("assert") and name not in ("raises", "fail"):
            return node
        counted = ast.parse(f"({WATCH}.count(), None)[1]", mode="eval").body
        for inner in ast.walk(counted):
            if "lineno" in inner._attributes:
                ast.copy_location(inner, node)
        assert isinstance(counted, ast.Subscript) and isinstance(counted.value, ast.Tuple)
        counted.value.elts[1] = node
        return counted


def _kept(name: str, value: ast.expr) -> ast.expr:
    """The value, and a name for it: `(name := value)`."""
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.NamedExpr(target, value), value)


# --- running them ---


def _run_functions(watch: Watch, report: Report, tree: ast.Module, where: str) -> None:
    import pytest
    from _pytest.assertion import rewrite

    setattr(builtins, WATCH, watch)
    rewrite_asserts: Callable[..., None] = rewrite.rewrite_asserts

    def rewritten(module: ast.Module, source: bytes, path: Any = None, config: Any = None) -> None:
        if path is not None and os.path.basename(path) == TESTS:
            # What was read before the solution ran, not what lies there now; and before
            # pytest's own rewriting, which leaves no asserts to count.
            module.body[:] = tree.body
        rewrite_asserts(module, source, path, config)

    rewrite.rewrite_asserts = rewritten
    options = [TESTS, "-q", "--tb=short", "--no-header", "-s", "-W", "ignore"]
    options += ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--rootdir", where]
    options += ["-c", os.devnull, "--confcutdir", where, "--import-mode=prepend"]
    try:
        pytest.main(options, plugins=[_Collector(report)])
    except BaseException as error:  # the code under test may raise anything
        report["broken"] = _broken("code", _text(error))


class _Collector:
    """A pytest plugin: what failed, in words."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = _cut(str(report.longrepr))
            self._report["broken"] = _broken(_side(text), text)

    def pytest_runtest_logreport(self, report: Any) -> None:
        failures = self._report["failures"]
        if report.failed and len(failures) < MOST_TESTS:
            name = report.nodeid.partition("::")[2].replace("::", ".")
            crash = getattr(report.longrepr, "reprcrash", None)
            line = crash.message if crash else str(report.longrepr)
            failures.append({"name": name, "line": _cut(line), "text": _cut(report.longreprtext)})


def _run_script(watch: Watch, report: Report, tree: ast.Module, source: str) -> None:
    """Tests without functions: asserts at the top, run as a program."""
    namespace = {"__name__": "__main__", "__file__": TESTS, WATCH: watch}
    try:
        exec(compile(tree, TESTS, "exec"), namespace)  # noqa: S102 - that is the job
        watch.leave("script")
    except BaseException as error:  # the code under test may raise anything
        text = _text(error)
        if isinstance(error, AssertionError):
            line = str(error) or _asserted(error, source)
            report["failures"].append({"name": "script", "line": _cut(line), "text": text})
        else:
            report["broken"] = _broken(_side(text), text)


def _broken(side: str, text: str) -> dict[str, str]:
    """Why no test could be run, and on whose side that is."""
    return {"side": side, "line": text.rsplit("\n", 1)[-1].removeprefix("E").strip(), "text": text}


def _side(text: str) -> str:
    """Which file an error is about that came before any test."""
    return "code" if "solution.py" in text.replace(TESTS, "") else "tests"


def _asserted(error: BaseException, source: str) -> str:
    lines = source.splitlines()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(TESTS) and frame.lineno:
            return f"AssertionError at line {frame.lineno}: {lines[frame.lineno - 1].strip()}"
    return "AssertionError"


def _text(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.basename(frame.filename) in ("solution.py", TESTS)
    ]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(error), error)
    return _cut("".join(lines).replace(f"{os.getcwd()}/", ""))


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_TEXT else "… " + text[-MOST_TEXT:]


if __name__ == "__main__":
    main()
