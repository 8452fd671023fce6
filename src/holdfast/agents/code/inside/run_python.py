"""Run test_solution.py against solution.py and write a sealed report. Copied into the sandbox.

Reads {"nonce", "limit"} from stdin. The tests are read, instrumented and compiled before the
solution is loaded, and run with built-ins of their own, so that what the solution does to files,
to pytest or to the built-ins changes nothing in them; what it replaces of the modules they use
is noticed. A test says when it was left and how, so that one that never ran leaves a gap. The
report is sealed with the nonce, which is in no file, argument or variable of the environment;
all that is needed to write it is bound at the start, and can't be replaced from Python.
"""

from __future__ import annotations

import ast
import builtins
import faulthandler
import hashlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import decode_source
from json import encoder
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.agents.code.inside import python_tamper, python_tests, python_watch

TESTS = "test_solution.py"
MODULE = "test_solution"
PIECES = ("python_watch", "python_tests", "python_tamper")
MOST_TEXT = 4000
_open = open
_C_ENCODER: object = getattr(encoder, "c_make_encoder")  # noqa: B009 - it is not in the stubs
_ASSERTED = "AssertionError: assert "
MOST_TESTS = 50

Report = dict[str, Any]


def main() -> None:
    given = json.loads(sys.stdin.readline())
    seal = hashlib.sha3_256(given["nonce"].encode())
    sys.stdin.close()
    sys.stdin = open(os.devnull)  # what the code reads is nothing, not what we were told
    where = os.getcwd()
    sys.dont_write_bytecode = True
    # On a descriptor of its own: where a program hangs is to be seen whatever it did to stderr.
    faulthandler.dump_traceback_later(given["limit"], file=os.fdopen(os.dup(2), "w"))
    write = _writer(seal, os.path.join(where, ".report"))
    del given, seal
    with open(os.path.join(where, TESTS), "rb") as file:
        raw = file.read()
    write(_run(raw, where))


def _writer(seal: Any, path: str) -> Callable[[Report], None]:
    """Binds what is needed at the end: C functions and types, which nobody can patch."""
    copy, opener, flush, leave, join = seal.copy, open, sys.stdout.flush, os._exit, "".join
    make = cast("Callable[..., Callable[[Report, int], Sequence[str]]]", _C_ENCODER)
    encode = make(None, None, encoder.encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def write(report: Report) -> None:
        flush()
        body = join(encode(report, 0)).encode()
        sealed = copy()
        sealed.update(body)
        with opener(path, "wb") as file:
            file.write(sealed.hexdigest().encode() + b"\n" + body)
        leave(0 if report["passed"] else 1)

    return write


def _run(raw: bytes, where: str) -> Report:
    report: Report = {"passed": False, "ran": [], "failures": [], "asserts": 0, "broken": None}
    try:
        tree = ast.parse(raw, TESTS)  # bytes: a byte order mark and an encoding are heeded
        source = decode_source(raw)
    except (SyntaxError, ValueError) as error:
        report["broken"] = _broken("tests", _text(error))
        return report
    watch = python_watch.Watch(source)
    expected = python_tests.instrument(tree)
    python_tamper.load_imports(tree)
    sys.path.append(where)  # behind all others: a file there takes the place of no module
    # From here on nothing of ours is looked up where the solution could have put its own.
    if expected:
        run = _functions(watch, report, tree, source, where)
    else:
        run = _script(watch, report, python_tests.compiled_script(tree, TESTS), source)
    untouched = python_tamper.Originals(tree)
    try:
        importlib.import_module("solution")
    except BaseException as error:  # the code under test may raise anything
        report["broken"] = _broken("code", _text(error))
        return report
    replaced = untouched.replaced()
    if replaced is None:
        run()
        replaced = untouched.replaced()
    if replaced is not None:
        told = f"the program replaced {replaced}, which its tests rely on: that is not a solution"
        report["broken"] = _broken("code", told)
    elif not _same_file(os.path.join(where, TESTS), raw):
        report["broken"] = _broken("code", f"the program changed {TESTS}: that is not a solution")
    _conclude(report, watch, expected)
    return report


def _same_file(path: str, raw: bytes) -> bool:
    try:
        with _open(path, "rb") as file:
            return file.read() == raw
    except OSError:
        return False


def _conclude(report: Report, watch: python_watch.Watch, expected: list[str]) -> None:
    for name, line, text in watch.swallowed():
        report["failures"].append({"name": name, "line": _cut(line), "text": _cut(text)})
    report["ran"] = sorted(watch.left - watch.failed)
    report["asserts"] = watch.asserts
    missing = [name for name in expected if name not in report["ran"]]
    report["missing"] = missing[:MOST_TESTS]
    ended = next((name for name in missing if name in watch.stopped), None)
    if ended is not None and not (report["failures"] or report["broken"]):
        told = f"the program ended {ended} by {watch.stopped[ended]}"
        report["broken"] = _broken("code", told)
    report["passed"] = not (report["failures"] or report["broken"] or missing) and watch.asserts > 0


# --- tests in functions, by pytest ---


def _functions(
    watch: python_watch.Watch, report: Report, tree: ast.Module, source: str, where: str
) -> Callable[[], None]:
    """Compile them as pytest would, now; the function that runs them, later."""
    import pytest
    from _pytest.assertion import rewrite

    rewrite.rewrite_asserts(tree, source.encode(), TESTS)
    python_tests.watch_rewritten(tree)
    path = os.path.join(where, TESTS)
    code = compile(tree, path, "exec", dont_inherit=True)
    _give_to_pytest(rewrite.AssertionRewritingHook, code, _builtins_with(watch))
    plugins = sorted({point.name for point in metadata.entry_points(group="pytest11")})
    options = [TESTS, "-q", "--tb=short", "--no-header", "-s", "-W", "ignore"]
    options += ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--rootdir", where]
    options += ["-c", os.devnull, "--confcutdir", where, "--noconftest", "--import-mode=append"]
    for plugin in plugins:
        options += ["-p", plugin]
    collector = _Collector(report)
    start, environ, unset = pytest.main, os.environ, os.unsetenv

    def run() -> None:
        for name in [name for name in environ if name.startswith("PYTEST")]:
            unset(name)
            del environ[name]
        environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        sys.modules.pop(MODULE, None)
        try:
            code = start(options, plugins=[collector])
        except BaseException as error:  # the code under test may raise anything
            report["broken"] = _broken("code", _text(error))
            return
        if code == pytest.ExitCode.INTERRUPTED and not (report["failures"] or report["broken"]):
            told = "the tests were interrupted: the program must not stop them"
            report["broken"] = _broken("code", told)

    return run


def _give_to_pytest(hook: Any, code: CodeType, private: dict[str, Any]) -> None:
    """Have pytest run our code for the tests, whatever lies in their file by then."""
    exec_module = hook.exec_module

    def ours(self: Any, module: Any) -> None:
        if module.__name__ != MODULE:
            exec_module(self, module)
            return
        self._rewritten_names[MODULE] = TESTS
        module.__dict__["__builtins__"] = private
        exec(code, module.__dict__)  # noqa: S102 - that is the job

    hook.exec_module = ours


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
            if line.startswith(_ASSERTED):  # which pytest leaves out only if no quote comes after
                line = line.removeprefix("AssertionError: ")
            failures.append({"name": name, "line": _cut(line), "text": _cut(report.longreprtext)})


# --- tests without functions, as a program ---


def _script(
    watch: python_watch.Watch, report: Report, code: CodeType, source: str
) -> Callable[[], None]:
    namespace = {
        "__name__": "__main__", "__file__": TESTS, "__builtins__": _builtins_with(watch),
    }  # fmt: skip

    def run() -> None:
        try:
            exec(code, namespace)  # noqa: S102 - that is the job
        except BaseException as error:  # the code under test may raise anything
            watch.fail(python_watch.SCRIPT)
            text = _text(error)
            if isinstance(error, AssertionError):
                line = str(error) or _asserted(error, source)
                report["failures"].append({"name": "script", "line": _cut(line), "text": text})
            else:
                report["broken"] = _broken(_side(text), text)
        watch.leave(python_watch.SCRIPT)

    return run


def _builtins_with(watch: python_watch.Watch) -> dict[str, Any]:
    """Built-ins for the tests alone, with the watch among them."""
    return {**vars(builtins), python_watch.NAME: watch}


# --- words ---


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


def _begin() -> None:
    """Load everything once more, with built-ins that only we have, and in no module."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.remove(folder)  # nobody else is to find what lies here
    private = dict(vars(builtins))

    def load(name: str, **known: Any) -> dict[str, Any]:
        path = os.path.join(folder, f"{name}.py")
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        namespace = {"__builtins__": private, "__name__": name, "__file__": path, **known}
        exec(code, namespace)  # noqa: S102 - our own
        return namespace

    known: dict[str, Any] = {}
    for name in PIECES:
        known[name] = SimpleNamespace(**load(name, **known))
    load(os.path.basename(__file__).removesuffix(".py"), **known)["main"]()


if __name__ == "__main__":
    _begin()
