"""Run test_solution.py by plain pytest, with the program in another sandbox. Copied into one.

Reads {"nonce", "limit", "source"} from the first line of stdin; what follows there, and what goes
out on stderr, are frames to and from the program: see `bridge_peer.py`. No code of the program's
runs here, so nothing is guarded and nothing of the tests is changed. Writes the same sealed report
that `run_python.py` writes.
"""

from __future__ import annotations

import ast
import faulthandler
import hashlib
import importlib
import json
import linecache
import os
import sys
from collections.abc import Callable
from importlib.util import decode_source
from typing import Any, NoReturn

from holdfast.agents.code.inside import bridge_judge, python_tests, python_watch, run_python
from holdfast.agents.code.inside.bridge_judge import Judge
from holdfast.agents.code.inside.run_python import (
    TESTS,
    Collector,
    Report,
    asserted,
    broken,
    cut,
    empty,
    has_frame,
    pytest_options,
    side_of,
    text_of,
    trace_of,
    writer,
)

CODE = "solution.py"
_HELD = "__held__"


def main() -> None:
    frames = os.fdopen(os.dup(0), "rb")
    given = json.loads(frames.readline())
    out = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)  # what tests print is no frame
    sys.stdin = open(0, closefd=False)
    where = os.getcwd()
    sys.dont_write_bytecode = True
    faulthandler.dump_traceback_later(given["limit"], file=os.fdopen(os.dup(1), "w"))
    write = writer(hashlib.sha3_256(given["nonce"].encode()), os.path.join(where, ".report"))
    _show_source(CODE, str(given["source"]))
    with open(os.path.join(where, TESTS), "rb") as file:
        raw = file.read()
    try:
        report = _run(raw, where, frames, out, write, given.get("modules", ["solution"]))
    except Exception as error:
        report = empty()
        report["broken"] = broken("runner", trace_of(error))
    write(report)


def _show_source(path: str, source: str) -> None:
    """Where an error of the program is told, its line is shown, though its file is not here."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)


def _run(
    raw: bytes,
    where: str,
    frames: Any,
    out: int,
    write: Callable[[Report], None],
    modules: list[str],
) -> Report:
    report = empty()
    try:
        tree = ast.parse(raw, TESTS)
        source = decode_source(raw)
        compile(tree, TESTS, "exec", dont_inherit=True)  # what only compiling finds
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report["broken"] = broken("tests", text_of(error))
        return report

    def leave(key: str, value: Any) -> NoReturn:
        """The rest can't change it: say so at once."""
        made = empty()
        made[key], made["lies"] = value, peer.lies
        write(made)
        raise AssertionError("unreachable")

    peer = bridge_judge.connect(frames, out, modules, tree, lambda why: leave("cannot_cross", why))
    peer.on_end = lambda: leave("ended", True)
    if frames.readline() != b"ready\n":
        leave("cannot_cross", "the program's side did not start")
    folder = os.path.dirname(os.path.abspath(__file__))
    bridge_judge.watch(peer, where, (folder,))
    sys.path[:] = [each for each in sys.path if each != folder]
    tests = _look(raw)
    run = _functions(report, tree, where) if tests.any else _script(report, tree, source)
    if modules == ["solution"]:
        try:
            importlib.import_module("solution")
        except BaseException as error:  # the program may raise anything
            report["broken"] = broken("code", text_of(error))
            return report
    peer.watching = True
    asserts, collector = run()
    peer.watching = False
    if report["failures"] and not peer.lies and _asks_identity(ast.parse(raw)):
        # Values that never change cross as copies: it may be that alone by which a test failed.
        leave("cannot_cross", "the tests ask which object a value is")
    _conclude(report, peer, tests, asserts, collector)
    return report


def _look(raw: bytes) -> python_tests.Tests:
    """What the text of the tests says; the tree that is changed for that is thrown away."""
    for piece in (python_tests, run_python):  # which are given it where they are guarded
        piece.__dict__["python_watch"] = python_watch
    found = python_tests.instrument(ast.parse(raw))
    found.certain = []
    return found


Ran = tuple[int, Collector | None]


def _functions(report: Report, tree: ast.Module, where: str) -> Callable[[], Ran]:
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options, collector = pytest_options(where), Collector(report)
    asserts = sum(_asserts(node) for node in tree.body)

    def run() -> Ran:
        try:
            code = pytest.main(options, plugins=[collector])
        except BaseException as error:  # what it raises that pytest lets through
            side = "code" if has_frame(error) else "runner"
            report["broken"] = broken(side, text_of(error) if side == "code" else trace_of(error))
            return asserts, collector
        if not (report["failures"] or report["broken"]):
            if code == pytest.ExitCode.INTERRUPTED:
                told = "the tests were interrupted: the program must not stop them"
                report["broken"] = broken("code", told)
            elif code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
                told = collector.internal or f"pytest ended with {code!r}"
                report["broken"] = broken("code" if CODE in told else "runner", told)
        return asserts, collector

    return run


def _script(report: Report, tree: ast.Module, source: str) -> Callable[[], Ran]:
    """Tests in no function: as a program that counts the assertions that held."""
    held: list[None] = []
    code = compile(_Counting().visit(tree), TESTS, "exec", dont_inherit=True)
    names = {"__name__": "__main__", "__file__": TESTS, _HELD: lambda: held.append(None)}

    def run() -> Ran:
        try:
            exec(code, names)  # noqa: S102 - that is the job
        except BaseException as error:  # tests and program may raise anything
            text = text_of(error)
            if isinstance(error, AssertionError):
                line = str(error) or asserted(error, source)
                report["failures"].append({"name": "script", "line": cut(line), "text": text})
            else:
                report["broken"] = broken(side_of(text), text)
        return len(held), None

    return run


def _asserts(node: ast.AST) -> int:
    """How many assertions of a module are in no function, and held if it was loaded."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return 0
    below = sum(_asserts(each) for each in ast.iter_child_nodes(node))
    return below + isinstance(node, ast.Assert)


def _asks_identity(tree: ast.Module) -> bool:
    """Whether two things are asked to be the same one, neither of which there is only once."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            asked = [[a, b] for a, op, b in pairs if isinstance(op, ast.Is | ast.IsNot)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assertIs":
            asked = [node.args[:2]]
        else:
            continue
        if any(not any(map(_is_single, pair)) for pair in asked):
            return True
    return False


def _is_single(node: ast.expr) -> bool:
    """None, True, False and the like, or a class that is asked for."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool) or node.value is Ellipsis
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type"
    return isinstance(node, ast.Attribute) and node.attr == "__class__"


class _Counting(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        call = ast.Expr(ast.Call(ast.Name(_HELD, ast.Load()), [], []))
        return [node, ast.fix_missing_locations(ast.copy_location(call, node))]


def _conclude(
    report: Report,
    peer: Judge,
    tests: python_tests.Tests,
    asserts: int,
    collector: Collector | None,
) -> None:
    report["lies"] = peer.lies
    if peer.lies and not report["failures"]:
        told = peer.lies[0]
        report["failures"].append({"name": "script", "line": told, "text": told})
    if collector is not None:
        watch = python_watch.Watch("")
        watch.asserts = 0 if collector.skipped_whole else asserts
        collector.conclude(watch, tests)
    elif not (report["failures"] or report["broken"]):
        report["ran"] = [python_watch.SCRIPT]
    report["asserts"], report["claims"] = asserts, tests.claims
    proven = report["ran"] and (asserts > 0 or tests.claims)
    spoilt = report["failures"] or report["broken"] or report["missing"]
    report["passed"] = bool(proven and not spoilt)


if __name__ == "__main__":
    main()
