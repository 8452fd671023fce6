"""The verdict on a program: its tests run in a sandbox, and only a sealed report counts.

What a program prints, the exit status it chooses and the files it leaves prove nothing: it
could have chosen them. The report must carry the seal of a nonce made here for this one run,
name every test that the test file holds, and come with exit status 0. A pass is then tried
against a stub program, one whose every function raises: tests that it passes too prove
nothing either.
"""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from holdfast.agents.code.languages import Language
from holdfast.agents.code.records import Side, Verdict
from holdfast.agents.command_output import tail, why_tests_ended
from holdfast.errors import InternalError, SandboxFileError, SandboxGone
from holdfast.records.sandboxes import MEANT_TO_FAIL
from holdfast.sandbox import CommandResult, Ended, Limit, Sandbox

REPORT = ".report"
PROGRESS = ".progress"
_MOST_REPORT = 1024 * 1024
_MOST_OUTPUT = "1mb"
_PLACE = "/tmp/runner"  # noqa: S108 - the sandbox's own
NODE_RUNNER = ("run_node.mjs", "node_tamper.mjs", "node_bundle.mjs")
_RUNNERS = {
    "python": ("run_python.py", "python_watch.py", "python_tests.py", "python_tamper.py"),
    "node": NODE_RUNNER,
}
_SPARE_SECONDS = 2.0
"""Between the dump of where a program hangs and its end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What running the tests may take."""

    seconds: float = 30.0
    memory: str = "1gb"
    pids: int = 128


@dataclass(frozen=True, slots=True)
class Report:
    """What the runner inside said, once its seal was found whole."""

    passed: bool
    ran: tuple[str, ...]
    missing: tuple[str, ...]
    asserts: int
    claims: bool = True
    """Whether the tests have anything that could fail them."""
    failures: tuple[dict[str, str], ...] = ()
    broken: dict[str, str] | None = field(default=None)
    skipped: tuple[str, ...] = ()
    many: int = 0
    """How many tests passed, each case of a parametrized one counted."""
    many_skipped: int = 0


async def judge(
    sandbox: Sandbox, language: Language, code: str, tests: str, limits: Limits
) -> Verdict:
    """Run the tests on the program in this sandbox, which is used for nothing else."""
    result, report = await _run(sandbox, language, "run_tests", code, tests, limits)
    place = await place_of(sandbox, language) if result.ended is Ended.TIMED_OUT else ""
    verdict = concluded(result, report, limits, sandbox.id, place)
    if not verdict.passed:
        return verdict
    stub = stub_program(code, language)
    if stub is None:
        return verdict
    _, report = await _run(sandbox, language, MEANT_TO_FAIL, stub, tests, limits)
    return test_nothing(verdict) if report is not None and report.passed else verdict


def test_nothing(verdict: Verdict) -> Verdict:
    """The verdict on tests that pass on a stub program, too."""
    return Verdict(
        False,
        "the tests pass whatever the program does",
        "Every function of the program was replaced by one that only raises an error, and "
        "the tests still passed: they test nothing. Tests must call the program's functions "
        "and assert what they return.",
        verdict.output, (), "tests", verdict.seconds, verdict.sandbox,
    )  # fmt: skip


async def _run(
    sandbox: Sandbox, language: Language, name: str, code: str, tests: str, limits: Limits
) -> tuple[CommandResult, Report | None]:
    """Run the tests once; `name` is what the command is called where people see it."""
    nonce = secrets.token_hex(32)
    runner, *pieces = _RUNNERS[language.runtime]
    place = f"{_PLACE}/{name}{Path(runner).suffix}"
    files = {language.code_file: code, language.test_file: tests, REPORT: "", PROGRESS: ""}
    files |= {place: inside(runner)} | {f"{_PLACE}/{each}": inside(each) for each in pieces}
    await sandbox.write_files(files)
    given = {
        "nonce": nonce,
        "limit": max(limits.seconds - _SPARE_SECONDS, 0.5),
        "code": language.code_file,
        "tests": language.test_file,
    }
    program = "python" if language.runtime == "python" else "node"
    result = await sandbox.run(
        program,
        place,
        stdin=f"{json.dumps(given)}\n",
        timeout=limits.seconds,
        max_output=_MOST_OUTPUT,
    )
    try:
        raw = await sandbox.read_file(REPORT, limit=_MOST_REPORT)
    except (SandboxFileError, SandboxGone):
        raw = b""
    data = unsealed(raw, nonce)
    report = None if data is None else report_of(data)
    await _blame(sandbox, result, report)
    return result, report


async def _blame(sandbox: Sandbox, result: CommandResult, report: Report | None) -> None:
    """Raise for a failure of the runner's own, which is neither the program's nor its tests'."""
    if report is not None:
        if report.broken is None or report.broken["side"] != "runner":
            return
        said = report.broken["text"]
    elif result.ended is not Ended.EXITED or await _progress(sandbox) != "":
        return
    else:
        said = f"exit status {result.exit_code}\n{tail(result.stderr)}"
    raise InternalError(
        f"the test runner failed before it came to a verdict: {said.strip()}",
        hint="this is a fault of Holdfast's, neither of the program nor of its tests; the run can "
        "be retried from here (`holdfast runs retry`)",
    )


async def _progress(sandbox: Sandbox) -> str | None:
    """How far it came: nothing, as long as the program has not been loaded."""
    try:
        read = await sandbox.read_file(PROGRESS, limit=_MOST_REPORT)
    except (SandboxFileError, SandboxGone):
        return None
    return read.decode(errors="replace")


async def place_of(sandbox: Sandbox, language: Language) -> str:
    """Which test was running, if the runner can't say by itself where it hangs."""
    if language.runtime != "node":
        return ""
    name = await _progress(sandbox)
    return f"It was here: {tail(name, 300)}" if name else ""


def inside(name: str) -> str:
    """The text of a file that runs in sandboxes."""
    return (resources.files("holdfast.agents.code.inside") / name).read_text(encoding="utf-8")


def unsealed(raw: bytes, nonce: str) -> dict[str, Any] | None:
    """What a report says, if its seal is whole."""
    seal, _, body = raw.partition(b"\n")
    true = hashlib.sha3_256(nonce.encode() + body).hexdigest().encode()
    if not hmac.compare_digest(seal, true):
        return None
    return json.loads(body)


def report_of(data: dict[str, Any]) -> Report:
    """A report as its runner writes it."""
    counts: dict[str, int] = data.get("counts", {})
    return Report(
        passed=bool(data["passed"]),
        ran=tuple(data["ran"]),
        missing=tuple(data.get("missing", ())),
        asserts=int(data["asserts"]),
        claims=bool(data.get("claims", False)),
        failures=tuple(data["failures"]),
        broken=data.get("broken"),
        skipped=tuple(data.get("skipped", ())),
        many=int(counts.get("passed", 0)) or len(data["ran"]),
        many_skipped=int(counts.get("skipped", 0)) or len(data.get("skipped", ())),
    )


def concluded(
    result: CommandResult, report: Report | None, limits: Limits, sandbox: str, place: str
) -> Verdict:
    """What a run of the tests came to; without a report, the program ended by itself."""
    output = tail(f"{result.stdout}\n{result.stderr}".strip())

    def failed(
        summary: str, error: str, failing: tuple[str, ...] = (), side: Side | None = None
    ) -> Verdict:
        return Verdict(False, summary, error, output, failing, side, result.seconds, sandbox)

    early = why_tests_ended(
        result, seconds=limits.seconds, memory=limits.memory, most_output=_MOST_OUTPUT
    )
    if early is not None:
        summary = _with_limits(early, result, limits)
        return failed(summary, f"{summary}.\n{place}\n{_hanging(result.stderr)}".strip())
    if report is None:
        summary = (
            f"the program ended by itself (exit status {result.exit_code}) before its tests did"
        )
        why = "The tests must run to their end: nothing may exit the process or replace the runner."
        return failed(summary, f"{summary}. {why}\n{tail(result.stderr)}".strip(), (), "code")
    if report.broken is not None:
        side: Side = "tests" if report.broken["side"] == "tests" else "code"
        return failed(_line(report.broken["line"]), report.broken["text"], (), side)
    if report.failures:
        names = tuple(failure["name"] for failure in report.failures)
        return failed(_line(report.failures[0]["line"]), _told(report), names)
    if report.missing:
        summary = f"{report.missing[0]} was not run"
        told = f"These tests were not run to their end: {', '.join(report.missing)}."
        return failed(summary, told, report.missing, "tests")
    if not report.ran:
        summary = "every test was skipped" if report.skipped else "the file has no tests"
        told = f"{summary[0].upper()}{summary[1:]}: {', '.join(report.skipped)}".rstrip(": ")
        return failed(summary, f"{told}. At least one must be run.", report.skipped, "tests")
    if report.asserts == 0 and not report.claims:
        return failed(
            "the tests assert nothing", "The test file has no assertion that was run.", (), "tests"
        )
    if not report.passed or result.exit_code != 0:
        summary = f"exit status {result.exit_code}"
        return failed(summary, f"The tests ended with {summary}.")
    many = f"{report.many} passed"
    if report.ran == ("script",):
        many = f"{report.asserts} asserts held"
    elif report.skipped:
        many += f", {report.many_skipped} skipped"
    return Verdict(True, many, None, output, (), None, result.seconds, sandbox)


def _with_limits(summary: str, result: CommandResult, limits: Limits) -> str:
    """Why the tests ended early, and the limit they reached before."""
    if Limit.PROCESSES in result.limits_hit:
        return f"{summary} (they started {limits.pids} processes or more)"
    return summary


def _hanging(stderr: str) -> str:
    """Where the program was when its time was up, of all that was printed."""
    place = [line for line in stderr.splitlines() if '  File "/workspace/' in line]
    if not place:
        return tail(stderr)
    return "It was here, innermost first:\n" + "\n".join(place[:20]).replace("/workspace/", "")


def _told(report: Report) -> str:
    """The failures as the model sees them: the first ones whole, the rest by name."""
    parts: list[str] = []
    room = 6000
    for failure in report.failures:
        text = f"{failure['name']}\n{failure['text']}"
        if parts and len(text) > room:
            break
        parts.append(tail(text))
        room -= len(text)
    left = [failure["name"] for failure in report.failures[len(parts) :]]
    if left:
        parts.append(f"Also failing: {', '.join(left)}")
    if report.ran:
        parts.append(f"Passing: {', '.join(report.ran)}")
    return "\n\n".join(parts)


def _line(text: str) -> str:
    """An error on one line: its first, and what follows if that only leads up to it."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if first.endswith(":") and rest:
        first = f"{first} {rest[0]}"
    return first[:200]


# --- the stub program: the same names, and every function raises ---

NODE_MARK = "/* holdfast: stub */"
"""Told by this comment, the runner for node replaces what a program exports."""


def stub_program(code: str, language: Language) -> str | None:
    """The program with every function's body replaced; None if it has no function."""
    if language.runtime == "node":
        return f"{code.rstrip()}\n{NODE_MARK}\n"
    tree = _Stub().visit(ast.parse(code))
    if not _Stub.found(tree):
        return None
    return ast.unparse(ast.fix_missing_locations(tree))


class _Stub(ast.NodeTransformer):
    @staticmethod
    def found(tree: ast.AST) -> bool:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        return any(isinstance(node, kinds) for node in ast.walk(tree))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = ast.parse("raise NotImplementedError('stub')").body
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = ast.parse("raise NotImplementedError('stub')").body
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = ast.parse(
            "(_ for _ in ()).throw(NotImplementedError('stub'))", mode="eval"
        ).body
        return node
