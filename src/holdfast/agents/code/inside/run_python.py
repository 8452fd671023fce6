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
import re
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
_PYTESTS = re.compile(r"^E\s{2,}")
"""How pytest begins the line of an error: an `EOFError` of one's own begins otherwise."""
_EXPLAINED = "\nE   Explanation:\n"
OURS = "/runner/python_watch.py"
MOST_TESTS = 50
MOST_NAMES = 2000
PROGRESS = ".progress"

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
    write = writer(seal, os.path.join(where, ".report"))
    del given, seal
    with open(os.path.join(where, TESTS), "rb") as file:
        raw = file.read()
    try:
        report = _run(raw, where)
    except Exception as error:
        # All that a program or its tests can raise was caught where they were run: this is ours.
        report = empty()
        report["broken"] = broken("runner", trace_of(error))
    write(report)


def writer(seal: Any, path: str) -> Callable[[Report], None]:
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


def empty() -> Report:
    return {
        "passed": False, "ran": [], "skipped": [], "counts": {"passed": 0, "skipped": 0},
        "failures": [], "missing": [], "asserts": 0, "claims": False, "broken": None,
    }  # fmt: skip


def _run(raw: bytes, where: str) -> Report:
    report = empty()
    try:
        tree = ast.parse(raw, TESTS)  # bytes: a byte order mark and an encoding are heeded
        source = decode_source(raw)
        compile(tree, TESTS, "exec", dont_inherit=True)  # what only compiling finds
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report["broken"] = broken("tests", text_of(error))
        return report
    watch = python_watch.Watch(source)
    tests = python_tests.instrument(tree)
    python_tamper.load_imports(tree)
    # From here on nothing of ours is looked up where the solution could have put its own.
    if tests.any:
        collector = Collector(report)
        run = _functions(watch, report, collector, tree, raw, where)
    else:
        collector = None
        run = _script(watch, report, python_tests.compiled_script(tree, TESTS), source)
    sys.path.append(where)  # behind all others: a file there takes the place of no module
    untouched = python_tamper.Originals(tree)
    _begun(where)
    try:
        importlib.import_module("solution")
    except BaseException as error:  # the code under test may raise anything
        report["broken"] = broken("code", text_of(error))
        return report
    replaced = untouched.replaced()
    if replaced is None:
        run()
        replaced = untouched.replaced()
    if replaced is not None:
        told = f"the program replaced {replaced}, which its tests rely on: that is not a solution"
        report["broken"] = broken("code", told)
    elif not _same_file(os.path.join(where, TESTS), raw):
        report["broken"] = broken("code", f"the program changed {TESTS}: that is not a solution")
    _conclude(report, watch, tests, collector)
    return report


def _begun(where: str) -> None:
    """From here on the program has a hand in what happens; before, all that fails is ours."""
    with open(os.path.join(where, PROGRESS), "w") as file:
        file.write("begun")


def _same_file(path: str, raw: bytes) -> bool:
    try:
        with _open(path, "rb") as file:
            return file.read() == raw
    except OSError:
        return False


def _conclude(
    report: Report,
    watch: python_watch.Watch,
    tests: python_tests.Tests,
    collector: Collector | None,
) -> None:
    for name, line, text in watch.swallowed():
        report["failures"].append({"name": name, "line": cut(line), "text": cut(text)})
    report["asserts"] = watch.asserts
    if collector is None:
        if not (report["failures"] or report["broken"]):
            report["ran"] = [python_watch.SCRIPT]
    else:
        collector.conclude(watch, tests)
    ended = next(iter(watch.stopped), None)
    if ended is not None and not (report["failures"] or report["broken"]):
        told = f"the program ended {ended} by {watch.stopped[ended]}"
        report["broken"] = broken("code", told)
    proven = report["ran"] and (watch.asserts > 0 or tests.claims)
    spoilt = report["failures"] or report["broken"] or report["missing"]
    report["claims"] = tests.claims
    report["passed"] = bool(proven and not spoilt)


# --- tests in functions, by pytest ---


def _functions(
    watch: python_watch.Watch,
    report: Report,
    collector: Collector,
    tree: ast.Module,
    raw: bytes,
    where: str,
) -> Callable[[], None]:
    """Compile them as pytest would, now; the function that runs them, later."""
    import pytest
    from _pytest.assertion import rewrite

    path = os.path.join(where, TESTS)
    python_tests.rewriter(rewrite.AssertionRewriter)(path, None, raw).run(tree)
    code = compile(tree, path, "exec", dont_inherit=True)
    ours_only = b"builtins" not in raw
    _give_to_pytest(rewrite.AssertionRewritingHook, code, watch, ours_only=ours_only)
    options = pytest_options(where)
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
            side = "code" if has_frame(error) else "runner"
            report["broken"] = broken(side, text_of(error) if side == "code" else trace_of(error))
            return
        if report["failures"] or report["broken"]:
            return
        if code == pytest.ExitCode.INTERRUPTED:
            told = "the tests were interrupted: the program must not stop them"
            report["broken"] = broken("code", told)
        elif code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            told = collector.internal or f"pytest ended with {code!r}"
            report["broken"] = broken("code" if "solution.py" in told else "runner", told)

    return run


def pytest_options(where: str) -> list[str]:
    """How pytest is started: on this one file, with the plug-ins of installed packages."""
    options = [TESTS, "-q", "--tb=short", "--no-header", "-s", "--disable-warnings"]
    options += ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--rootdir", where]
    options += ["-c", os.devnull, "--confcutdir", where, "--noconftest", "--import-mode=append"]
    for plugin in sorted({point.name for point in _plugins()}):
        options += ["-p", plugin]
    return options


def _plugins() -> list[metadata.EntryPoint]:
    """pytest's plugins of the packages that are installed, loaded: some replace parts of pytest."""
    points = list(metadata.entry_points(group="pytest11"))
    for point in points:
        try:
            point.load()
        except Exception:  # noqa: S110 - pytest will say so itself
            pass
    return points


def _give_to_pytest(
    hook: Any, code: CodeType, watch: python_watch.Watch, *, ours_only: bool
) -> None:
    """Have pytest run our code for the tests, whatever lies in their file by then.

    With built-ins of their own, unless they speak of `builtins`, and may want to replace some.
    """
    exec_module = hook.exec_module
    private = _builtins_with(watch) if ours_only else None

    def ours(self: Any, module: Any) -> None:
        if module.__name__ != MODULE:
            exec_module(self, module)
            return
        self._rewritten_names[MODULE] = TESTS
        module.__dict__["__builtins__"] = builtins if private is None else private
        module.__dict__[python_watch.NAME] = watch
        exec(code, module.__dict__)  # noqa: S102 - that is the job

    hook.exec_module = ours


class Collector:
    """A pytest plugin: what there is to run, what came of it, and what failed, in words."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._items: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}
        self.skipped_whole = False
        self.internal = ""

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = cut(str(report.longrepr))
            self._report["broken"] = broken(side_of(text), text)
        elif report.skipped:
            self.skipped_whole = True

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self._items[item.nodeid] = _name(item.nodeid)

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.internal = cut(str(excrepr))

    def pytest_runtest_logreport(self, report: Any) -> None:
        known = self._outcomes.get(report.nodeid)
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped and known != "failed":
            self._outcomes[report.nodeid] = "skipped"
        elif report.when == "call" and known is None:
            self._outcomes[report.nodeid] = "passed"
        failures = self._report["failures"]
        if report.failed and len(failures) < MOST_TESTS:
            crash = getattr(report.longrepr, "reprcrash", None)
            line = crash.message if crash else str(report.longrepr)
            if line.startswith(_ASSERTED):  # which pytest leaves out only if no quote comes after
                line = line.removeprefix("AssertionError: ")
            text = cut(_without_ours(report.longreprtext))
            failures.append({"name": _name(report.nodeid), "line": cut(line), "text": text})

    def conclude(self, watch: python_watch.Watch, tests: python_tests.Tests) -> None:
        """What was run, left out, and what is missing though it should have been run."""
        report = self._report
        ran, skipped, missing = set[str](), set[str](), set[str]()
        for node, name in self._items.items():
            outcome = self._outcomes.get(node)
            kept = {"passed": ran, "skipped": skipped, "failed": None}.get(outcome or "", missing)
            if kept is not None:
                kept.add(name)
            if outcome in report["counts"]:
                report["counts"][outcome] += 1
        plain = {name.partition("[")[0] for name in ran | skipped}
        failed = {failure["name"].partition("[")[0] for failure in report["failures"]}
        collected = {name.partition("[")[0] for name in self._items.values()}
        for name in tests.certain if not self.skipped_whole else ():
            if name not in collected or (name in plain - failed and _unended(name, ran, watch)):
                missing.add(name)
        if not self._items and not report["broken"] and watch.asserts and not missing:
            ran.add(python_watch.SCRIPT)  # all that it asserts is in no function
        report["ran"], report["skipped"] = sorted(ran)[:MOST_NAMES], sorted(skipped)[:MOST_NAMES]
        report["missing"] = sorted(missing)[:MOST_TESTS]


def _unended(name: str, ran: set[str], watch: python_watch.Watch) -> bool:
    """Whether pytest says that a test passed which was never left in the ordinary way."""
    passed = any(each.partition("[")[0] == name for each in ran)
    return passed and name not in watch.ended


def _name(node: str) -> str:
    name, bracket, case = node.partition("::")[2].partition("[")
    return f"{name.replace('::', '.')}{bracket}{case}"


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
            text = text_of(error)
            if isinstance(error, AssertionError):
                line = str(error) or asserted(error, source)
                report["failures"].append({"name": "script", "line": cut(line), "text": text})
            else:
                report["broken"] = broken(side_of(text), text)

    return run


def _builtins_with(watch: python_watch.Watch) -> dict[str, Any]:
    """Built-ins for the tests alone, with the watch among them."""
    return {**vars(builtins), python_watch.NAME: watch}


# --- words ---


def broken(side: str, text: str) -> dict[str, str]:
    """Why no test could be run, and on whose side that is."""
    return {"side": side, "line": _PYTESTS.sub("", text.rsplit("\n", 1)[-1]).strip(), "text": text}


def side_of(text: str) -> str:
    """Which file an error is about that came before any test."""
    return "code" if "solution.py" in text.replace(TESTS, "") else "tests"


def asserted(error: BaseException, source: str) -> str:
    lines = source.splitlines()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(TESTS) and frame.lineno:
            return f"AssertionError at line {frame.lineno}: {lines[frame.lineno - 1].strip()}"
    return "AssertionError"


def text_of(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.basename(frame.filename) in ("solution.py", TESTS)
    ]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(error), error)
    return cut("".join(lines).replace(f"{os.getcwd()}/", ""))


def _without_ours(text: str) -> str:
    """What failed, without what hypothesis makes of the lines of ours that it passed through."""
    before, begins, after = text.partition(_EXPLAINED)
    return before.rstrip() if begins and OURS in after else text


def trace_of(error: BaseException) -> str:
    return cut("".join(traceback.format_exception(error)))


def has_frame(error: BaseException) -> bool:
    """Whether the program or its tests had a part in it."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(os.path.basename(each.filename) in ("solution.py", TESTS) for each in frames)


def cut(text: str) -> str:
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
