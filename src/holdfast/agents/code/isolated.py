"""The verdict with judge and program apart: tests in one sandbox, the program in another.

Frames between the two go through this process, which only carries them: each side writes them to
its standard error and reads them from its input; what is printed is on its standard output. What
a frame holds is the two sides' own affair (`inside/bridge_*.py` or `inside/node_*.mjs`). The
program's sandbox holds no test, and the judge's runs nothing of the program's. Whatever does not
come to a clear end here (tests that need one interpreter, a fault of the bridge's own) is no
verdict: it is a reason to judge the same files anew in one process, at level `shared`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import marshal
import re
import secrets
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import util
from typing import Any

from holdfast.agents.code import verdict
from holdfast.agents.code.languages import Language
from holdfast.agents.code.records import Verdict
from holdfast.agents.code.verdict import inside, stub_program
from holdfast.errors import SandboxFileError, SandboxGone
from holdfast.records.sandboxes import MEANT_TO_FAIL
from holdfast.sandbox import Command, CommandResult, Ended, Sandbox

_BOTH = tuple(
    f"bridge_{each}.py" for each in ("values", "classes", "state", "encoding", "decoding", "peer")
)
_JUDGES = ("bridge_judge.py", "run_python.py", "python_tests.py", "python_watch.py")
PIECES = (*_BOTH, *_JUDGES)
"""What the two sides are made of, beside `run_isolated.py` and `bridge_program.py`."""
_NODE_BOTH = tuple(f"node_{each}.mjs" for each in ("bundle", "channel", "values", "peer"))
_NODE_JUDGES = ("node_judge.mjs", *_NODE_BOTH)
_PLACE = "/tmp/runner"  # noqa: S108 - the sandbox's own
_PACKAGE = f"{_PLACE}/holdfast/agents/code/inside"
_KEPT = 64 * 1024 * 1024
"""Of frames that wait to be carried on; one is at most half of it."""
_MOST_PRINTED = 1024 * 1024
_PRINTED_TOO_MUCH = 77
_MANY_CALLS = 1000
"""If the time is up after so many, it may be the bridge that took it."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """Why there is no verdict at this level."""

    why: str


@dataclass(frozen=True, slots=True)
class Both:
    """The two sandboxes of a trial."""

    judge: Sandbox
    program: Sandbox


async def judge(
    both: Both, language: Language, code: str, tests: str, limits: verdict.Limits
) -> Verdict | Inconclusive:
    """Run the tests on the program, each in its sandbox."""
    run = await _carried(both, "run_tests", language, code, tests, limits)
    hanging = run.judge.ended is Ended.TIMED_OUT
    place = await verdict.place_of(both.judge, language) if hanging else ""
    found = _concluded(run, limits, both, place)
    stub = stub_program(code, language) if isinstance(found, Verdict) and found.passed else None
    if stub is None or isinstance(found, Inconclusive):
        return found
    again = await _carried(both, MEANT_TO_FAIL, language, stub, tests, limits)
    if again.report is not None and again.report.get("passed"):
        return replace(verdict.test_nothing(found), level="isolated")
    return found


def _concluded(run: _Run, limits: verdict.Limits, both: Both, place: str) -> Verdict | Inconclusive:
    result, data = _as_one(run), run.report
    if result.ended is Ended.TIMED_OUT and run.frames > _MANY_CALLS:
        return Inconclusive(f"the time was up after {run.frames:,} calls between two processes")
    if result.ended is Ended.EXITED and data is None:
        return Inconclusive("the judge ended without a report")
    if result.ended in (Ended.SIGNALLED, Ended.STOPPED) and not run.program_ended:
        return Inconclusive(f"the judge was ended ({result})")
    if data is None:
        data = {}
    lies: list[str] = data.get("lies") or []
    if data.get("cannot_cross") and not lies:
        return Inconclusive(str(data["cannot_cross"]))
    if data.get("broken") and data["broken"]["side"] == "runner":
        return Inconclusive(str(data["broken"]["line"]))
    report = verdict.report_of(data) if data and not run.program_ended else None
    if lies and report is not None and not report.failures:
        told = {"name": "script", "line": lies[0], "text": lies[0]}
        report = replace(report, failures=(told,), passed=False)
    found = verdict.concluded(result, report, limits, both.judge.id, place)
    return replace(found, level="isolated")


def _as_one(run: _Run) -> CommandResult:
    """How the tests ended, seen as if they had been one process."""
    printed = run.judge.stdout_bytes + run.program.stdout_bytes
    hanging = run.program.stdout_bytes + run.judge.stdout_bytes
    timed_out = Ended.TIMED_OUT in (run.judge.ended, run.program.ended)
    ended = run.program if run.program_ended else run.judge
    if run.program_ended and run.program.exit_code == _PRINTED_TOO_MUCH:
        ended = replace(ended, ended=Ended.OUTPUT_LIMIT)
    return replace(
        ended,
        ended=Ended.TIMED_OUT if timed_out else ended.ended,
        stdout_bytes=b"" if timed_out else printed,
        stderr_bytes=hanging if timed_out else b"",
        seconds=run.judge.seconds,
    )


@dataclass(slots=True)
class _Run:
    """What came of one run of the tests."""

    judge: CommandResult
    program: CommandResult
    report: dict[str, Any] | None
    frames: int

    @property
    def program_ended(self) -> bool:
        """Whether the program was gone before its tests had ended."""
        return bool(self.report and self.report.get("ended"))


async def _carried(
    both: Both, name: str, language: Language, code: str, tests: str, limits: verdict.Limits
) -> _Run:
    """Start both sides and carry frames between them until the tests have ended."""
    nonce = secrets.token_hex(32)
    limit = max(limits.seconds - 2.0, 0.5)
    sides = _python_sides if language.runtime == "python" else _node_sides
    judge_s, program_s = sides(name, language, code, tests, limit)
    await asyncio.gather(
        both.judge.write_files(judge_s.files), both.program.write_files(program_s.files)
    )
    # The judge's time is up first: a program that hangs is no program that has gone.
    seconds, kept = limits.seconds, _KEPT
    judging, program = await asyncio.gather(
        both.judge.start(*judge_s.command, stdin=True, timeout=seconds, max_output=kept),
        both.program.start(*program_s.command, stdin=True, timeout=seconds + 5, max_output=kept),
    )
    await program.write_stdin(f"{json.dumps(program_s.told)}\n")
    await judging.write_stdin(f"{json.dumps({**judge_s.told, 'nonce': nonce})}\n")
    there = asyncio.create_task(_carry(judging, program))
    back = asyncio.create_task(_carry(program, judging))
    try:
        ended = await judging.wait()
        await asyncio.wait([there])
        await _written(program, b"", last=True)
        await program.end(Ended.STOPPED)
        said = await program.wait()
        frames = await back
    finally:
        there.cancel()
        back.cancel()
    try:
        raw = await both.judge.read_file(verdict.REPORT, limit=1024 * 1024)
    except (SandboxFileError, SandboxGone):
        raw = b""
    return _Run(ended, said, verdict.unsealed(raw, nonce), frames)


@dataclass(frozen=True, slots=True)
class _Side:
    """What one of the two sandboxes is given, and runs."""

    files: dict[str, str | bytes]
    command: tuple[str, ...]
    told: dict[str, Any]


def _python_sides(
    name: str, language: Language, code: str, tests: str, limit: float
) -> tuple[_Side, _Side]:
    script, served = f"{_PLACE}/{name}.py", f"{_PLACE}/program.py"
    own = {language.test_file: tests, verdict.REPORT: "", script: inside("run_isolated.py")}
    theirs = {language.code_file: code, served: inside("bridge_program.py")}
    return (
        _Side(
            {**own, **runner_modules(*PIECES)},
            ("python", script),
            {"limit": limit, "source": code},
        ),
        _Side({**theirs, **runner_modules(*_BOTH)}, ("python", served), {"limit": limit}),
    )


def _node_sides(
    name: str, language: Language, code: str, tests: str, limit: float
) -> tuple[_Side, _Side]:
    # Node can't move its own descriptors: frames get ones that nothing prints to.
    moved = "exec 3>&2 4<&0 2>&1 </dev/null\n"
    script, served = f"{_PLACE}/{name}.sh", f"{_PLACE}/program.sh"
    about = {"limit": limit, "code": language.code_file}
    own: dict[str, str | bytes] = {
        language.test_file: tests,
        verdict.REPORT: "",
        verdict.PROGRESS: "",
        script: f"{moved}exec node {_PLACE}/run_node.mjs apart\n",
        **{f"{_PLACE}/{each}": inside(each) for each in (*verdict.NODE_RUNNER, *_NODE_JUDGES)},
    }
    theirs: dict[str, str | bytes] = {
        language.code_file: code,
        served: f"{moved}exec node {_PLACE}/node_program.mjs\n",
        **{f"{_PLACE}/{each}": inside(each) for each in ("node_program.mjs", *_NODE_BOTH)},
    }
    return (
        _Side(own, ("sh", script), {**about, "tests": language.test_file}),
        _Side(theirs, ("sh", served), about),
    )


async def _carry(source: Command, target: Command) -> int:
    """Pass on what one side writes; the number of pieces. Its end is passed on as well."""
    pieces = 0
    printed = 0
    async for output in source:
        if output.stream == "stderr":
            pieces += 1
            if not await _written(target, output.data):
                break
        else:
            printed += len(output.data)
            if printed > _MOST_PRINTED:
                await source.end(Ended.OUTPUT_LIMIT)
    await _written(target, b"", last=True)
    return pieces


async def _written(target: Command, data: bytes, *, last: bool = False) -> bool:
    """Whether it still reads; one that took its sandbox with it does not."""
    try:
        return await target.write_stdin(data, last=last)
    except SandboxGone:
        return False


@cache
def runner_modules(*names: str) -> dict[str, str | bytes]:
    """Modules of ours as files for a sandbox, with their compiled code.

    Compiling them takes longer than all else that a program's side does before it is ready. An
    interpreter of another version than ours passes over what it can't use.
    """
    files: dict[str, str | bytes] = {}
    for name in names:
        source, path = inside(name), f"{_PACKAGE}/{name}"
        code = marshal.dumps(compile(source, path, "exec", dont_inherit=True))
        stamp = (1).to_bytes(4, "little") + util.source_hash(source.encode())  # never checked again
        stem = name.removesuffix(".py")
        compiled = f"{_PACKAGE}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc"
        files |= {path: source, compiled: util.MAGIC_NUMBER + stamp + code}
    return files


# --- which tests can be judged apart from the program, as far as their text tells ---


_MODULES = {
    "inspect": "looks into the program",
    "gc": "looks into the program's memory",
    "tracemalloc": "looks into the program's memory",
    "weakref": "looks into the program's memory",
    "ctypes": "looks into the program's memory",
    "pickle": "pickles the program's objects",
    "copyreg": "pickles the program's objects",
    "shelve": "pickles the program's objects",
    "marshal": "pickles the program's objects",
    "subprocess": "starts processes",
    "multiprocessing": "starts processes",
    "runpy": "runs the program as a script",
    "threading": "uses threads",
    "_thread": "uses threads",
    "concurrent": "uses threads",
    "queue": "uses threads",
    "signal": "uses signals",
    "atexit": "waits for the end of the process",
    "logging": "reads the program's log",
    "doctest": "reads the program's source",
    "tokenize": "reads the program's source",
    "linecache": "reads the program's source",
    "traceback": "reads the program's frames",
    "timeit": "measures time",
    "freezegun": "changes the clock",
    "time_machine": "changes the clock",
    "tempfile": "uses files",
    "shutil": "uses files",
    "sqlite3": "uses files",
    "socket": "uses sockets",
    "numpy": "shares a package's objects with the program",
    "pandas": "shares a package's objects with the program",
}
_NAMES = {
    "reload": "loads the program anew",
    "spec_from_file_location": "loads the program by its file",
    "getsource": "reads the program's source",
    "perf_counter": "measures time",
    "perf_counter_ns": "measures time",
    "monotonic": "measures time",
    "process_time": "measures time",
    "settrace": "traces the program",
    "setprofile": "traces the program",
    "getsizeof": "looks into the program's memory",
    "getrefcount": "looks into the program's memory",
    "setrecursionlimit": "changes the interpreter",
    "getcontext": "changes the context of decimals",
    "setcontext": "changes the context of decimals",
    "localcontext": "changes the context of decimals",
    "setlocale": "changes the locale",
    "tzset": "changes the clock",
    "assertLogs": "reads the program's log",
    "assertNoLogs": "reads the program's log",
    "get_type_hints": "looks into the program",
    "__annotations__": "looks into the program",
    "__code__": "looks into the program",
    "__globals__": "looks into the program",
    "__closure__": "looks into the program",
    "__defaults__": "looks into the program",
    "__wrapped__": "looks into the program",
    "__traceback__": "reads the program's frames",
    "currentframe": "reads the program's frames",
    "_getframe": "reads the program's frames",
    "caplog": "reads the program's log",
    "capfd": "reads the process's output",
    "capfdbinary": "reads the process's output",
    "capsysbinary": "reads the process's output",
    "tmp_path": "uses files",
    "tmpdir": "uses files",
    "tmp_path_factory": "uses files",
    "benchmark": "measures time",
}
_TEXT = re.compile(r"(^|[\s/'\"])solution\.py\b|(^|\s)-m\s+solution\b")


def needs_one_process(tests: str) -> str | None:
    """What the tests do that needs one interpreter; None if nothing in their text does."""
    try:
        tree = ast.parse(tests)
        names = symtable.symtable(tests, "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # judged as what they are, at either level
    if _uses_built_in("id", names) or _compares_copies(tree):
        return "asks which object a value is"  # one that never changes crosses as a copy
    for node in ast.walk(tree):
        for reason in _reasons(node):
            return reason
    return None


def _uses_built_in(name: str, module: symtable.SymbolTable) -> bool:
    """Whether a scope means the built-in by this name, and nothing of the tests' own."""
    if name in module.get_identifiers():
        own = module.lookup(name)
        if own.is_assigned() or own.is_imported():
            return False
    scopes = [module]
    for scope in scopes:
        scopes.extend(scope.get_children())
    return any(
        name in scope.get_identifiers()
        and scope.lookup(name).is_referenced()
        and scope.lookup(name).is_global()
        for scope in scopes
    )


def _compares_copies(tree: ast.Module) -> bool:
    """Whether `is` is asked of what the tests themselves show to be a value that never changes."""
    values: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_value(node.value):
            values.update(each.id for each in node.targets if isinstance(each, ast.Name))
    return any(
        _is_value(side) or (isinstance(side, ast.Name) and side.id in values)
        for sides in _identities(tree)
        for side in sides
    )


def _identities(tree: ast.Module) -> Iterator[list[ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for place, operator in enumerate(node.ops):
                if isinstance(operator, ast.Is | ast.IsNot):
                    yield sides[place : place + 2]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("assertIs", "assertIsNot")
        ):
            yield node.args[:2]


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_value(node.left) and _is_value(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes | int | float | complex) and not isinstance(
            node.value, bool
        )
    return isinstance(node, ast.Tuple | ast.JoinedStr)


def _reasons(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from _known(_MODULES, *(alias.name.partition(".")[0] for alias in node.names))
    elif isinstance(node, ast.ImportFrom):
        yield from _known(_MODULES, (node.module or "").partition(".")[0])
        yield from _known(_NAMES, *(alias.name for alias in node.names))
    elif isinstance(node, ast.Attribute):
        yield from _known(_NAMES, node.attr)
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("time", "time"):
            yield "measures time"
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("sys", "modules"):
            yield "changes which modules are loaded"
    elif isinstance(node, ast.Name):
        yield from _known(_NAMES, node.id)
    elif isinstance(node, ast.arg):
        yield from _known(_NAMES, node.arg)
    elif isinstance(node, ast.Constant) and _names_file(node.value):
        yield "starts or reads the program's file"


def _names_file(value: object) -> bool:
    return isinstance(value, str) and len(value) < 200 and _TEXT.search(value) is not None


def _known(table: dict[str, str], *names: str) -> Iterator[str]:
    yield from (table[name] for name in names if name in table)
