"""Judging a patch: the repo's own tests on the base and the patch, in a fresh sandbox.

What the agent says or saw counts for nothing here. Passed means: something was changed, nothing
in the patch is unfit for a user's tree, the tests ran and none failed, none that was there is
gone, and no fewer pass than before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.agents.code import javascript
from holdfast.agents.command_output import both_ends, why_tests_ended
from holdfast.agents.repo import patches, test_detection
from holdfast.agents.repo.records import (
    Base,
    ChangedTest,
    Counts,
    Patch,
    Plan,
    TestPlan,
    TestRun,
    Verdict,
)
from holdfast.agents.repo.test_detection import test_script
from holdfast.agents.repo.workspace import ROOT, Workspace
from holdfast.sandbox import CommandResult

_MOST_OUTPUT = "8mb"
_KEPT = 8000
_TOLD = 6000
_COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_UNITTEST = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)
_NODE = re.compile(r"^(?:#|ℹ) (pass|fail|cancelled|skipped|todo) (\d+)\s*$", re.MULTILINE)


async def run_tests(base: Base, plan: Plan) -> TestRun | None:
    """The tests as they were, on the code as it was; None if there are none."""
    if base.tests is None:
        return None
    workspace = await Workspace.open(base, plan, seconds=plan.test_timeout + 120)
    async with workspace.sandbox:
        return await _tests(workspace, base.tests, plan)


async def judge(
    base: Base, plan: Plan, patched: Sequence[Patch], before: TestRun | None, *, keep_tests: bool
) -> Verdict:
    """The verdict on the base with these patches on it."""
    workspace = await Workspace.open(base, plan, patched, seconds=2 * plan.test_timeout + 300)
    async with workspace.sandbox:
        patch = await workspace.diff(base.tree, workspace.tree)
        if not patch.text:
            return Verdict(False, "nothing was changed", "No file was changed.")
        faults = patches.faults(patch)
        if faults:
            told = "; ".join(faults[:5])
            return Verdict(False, f"unfit to be applied: {told}", told)
        changed = patches.changes(patch)
        files = tuple(dict.fromkeys(change.path for change in changed))
        tests, removed = await _guarded(workspace, base.tree, files)
        verdict = Verdict(
            False, "", changed_tests=tests, removed_tests=removed, patch=patch, files=files,
            lines=sum(change.added + change.removed for change in changed),
        )  # fmt: skip
        refused = _refused(verdict, keep_tests=keep_tests)
        return refused or await _tested(workspace, base, plan, before, verdict)


def _refused(verdict: Verdict, *, keep_tests: bool) -> Verdict | None:
    """Why the tests need not even be run."""
    removed = verdict.removed_tests
    if removed:
        told = f"tests were removed: {', '.join(removed[:8])}"
        problem = f"These tests are gone, and must be put back: {', '.join(removed)}"
        return replace(verdict, summary=told, problem=problem)
    touched = _touched(verdict)
    if keep_tests and touched:
        told = f"tests were changed: {', '.join(touched)}"
        problem = f"Existing tests must stay as they are, but {told}. Put them back."
        return replace(verdict, summary=told, problem=problem)
    return None


def _touched(verdict: Verdict) -> list[str]:
    """Test files that were there before, and are not as they were."""
    return [test.path for test in verdict.changed_tests if test.how != "added"]


async def _tested(
    workspace: Workspace, base: Base, plan: Plan, before: TestRun | None, verdict: Verdict
) -> Verdict:
    how = base.tests
    if how is None:
        files = await workspace.names("ls-files", "-z")
        how = (await test_detection.look(workspace, files)).tests
    if how is None:
        told = "not verified: the repo has no tests"
        problem = "The repo has no tests that could be run. Add tests for the change."
        return replace(verdict, summary=told, problem=problem)
    run = await _tests(workspace, how, plan)
    fewer = _fewer(before, run)
    passed = run.ok and fewer is None
    original = None
    touched = _touched(verdict)
    if passed and touched:
        await workspace.sandbox.stop("judged")
        original = await _with_original(base, plan, how, verdict.patch, touched)
    return replace(
        verdict,
        passed=passed,
        summary=fewer if run.ok and fewer is not None else run.summary,
        problem=fewer if run.ok else _problem(how, run),
        tests=run,
        original=original,
    )


async def _guarded(
    workspace: Workspace, before: str, files: Sequence[str]
) -> tuple[tuple[ChangedTest, ...], tuple[str, ...]]:
    old: dict[str, str | None] = {}
    new: dict[str, str | None] = {}
    for path in files:
        for tree, texts in ((before, old), (workspace.tree, new)):
            raw = await workspace.content(tree, path)
            texts[path] = None if raw is None else raw.decode("utf-8", "replace")
    return changed_tests(old, new)


async def _with_original(
    base: Base, plan: Plan, how: TestPlan, patch: Patch, paths: list[str]
) -> TestRun:
    """The new code with the tests as they were; in a sandbox of its own, like every run."""
    workspace = await Workspace.open(base, plan, [patch], seconds=plan.test_timeout + 120)
    async with workspace.sandbox:
        await workspace.ask("--literal-pathspecs", "checkout", base.tree, "--", *paths)
        return await _tests(workspace, how, plan)


async def _tests(workspace: Workspace, how: TestPlan, plan: Plan) -> TestRun:
    result = await workspace.sandbox.shell(
        f"exec 2>&1\n{how.command}",
        cwd=ROOT,
        timeout=plan.test_timeout,
        max_output=_MOST_OUTPUT,
        env={"CI": "true", "NO_COLOR": "1"},
    )
    counts = count(result.stdout)
    return TestRun(
        ok=_ok(result, how, counts),
        summary=_summary(result, how, counts, plan),
        output=both_ends(result.stdout.strip("\n"), _KEPT),
        exit_code=result.exit_code,
        seconds=result.seconds,
        counts=counts,
        sandbox=workspace.sandbox.id,
    )


def _ok(result: CommandResult, how: TestPlan, counts: Counts | None) -> bool:
    if not result.ok:
        return False
    if counts is None:
        return bool({"npm", "make", "given"} & set(how.kinds))  # these may print what they like
    return counts.failed == 0 and counts.passed > 0


def count(output: str) -> Counts | None:
    """The numbers of tests, from what pytest, unittest or node print at the end."""
    node = {word: int(number) for word, number in _NODE.findall(output)}
    passed, failed, skipped = (
        node.get("pass", 0),
        node.get("fail", 0) + node.get("cancelled", 0),
        node.get("skipped", 0) + node.get("todo", 0),
    )
    found = bool(node)
    for line in reversed(output.splitlines()[-30:]):
        words = _COUNTED.findall(line) if " in " in line or line.startswith("=") else []
        if words:
            found = True
            for number, word in words:
                passed += int(number) if word == "passed" else 0
                failed += int(number) if word in ("failed", "error", "errors") else 0
                skipped += int(number) if word == "skipped" else 0
            break
    ran = _UNITTEST.findall(output)
    if ran:
        found = True
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", output))
        passed, failed = passed + int(ran[-1]) - bad, failed + bad
        skipped += sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
    return Counts(passed, failed, skipped) if found else None


def _summary(result: CommandResult, how: TestPlan, counts: Counts | None, plan: Plan) -> str:
    early = why_tests_ended(
        result, seconds=plan.test_timeout, memory=plan.memory, most_output=_MOST_OUTPUT
    )
    if early is not None:
        return early
    if counts is None:
        return f"{how.command}: exit code {result.exit_code}"
    words = [f"{counts.passed} passed"]
    words += [f"{counts.failed} failed"] if counts.failed else []
    words += [f"{counts.skipped} skipped"] if counts.skipped else []
    if result.exit_code and not counts.failed:
        words.append(f"exit code {result.exit_code}")
    return ", ".join(words)


def _fewer(before: TestRun | None, now: TestRun) -> str | None:
    """Said if fewer tests pass than before: some do not run any more."""
    if before is None or before.counts is None or now.counts is None:
        return None
    if now.counts.passed >= before.counts.passed:
        return None
    return f"only {now.counts.passed} tests pass, and {before.counts.passed} did before"


def _problem(how: TestPlan, run: TestRun) -> str:
    output = both_ends(run.output, _TOLD)
    return f"`{how.command}` was run on your change: {run.summary}.\n\n{output}"


# --- which changes touch the tests, and whether they make them weaker ---


_TEST_FILE = re.compile(
    r"(^|/)(tests?|__tests__|specs?)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$"
    r"|[.-](test|spec)\.[cm]?[jt]sx?$"
)
_SETTINGS = re.compile(
    r"(^|/)(pytest\.ini|tox\.ini|noxfile\.py|\.mocharc\.\w+|\.coveragerc"
    r"|(jest|vitest|ava|playwright)\.config\.\w+)$"
)
_MIXED = {"pyproject.toml", "setup.cfg", "package.json", "Makefile"}
"""Files with settings of the tests among others."""
_ASSERTS = re.compile(
    r"^\s*assert\b|\bself\.assert\w+\s*\(|\bself\.fail\w*\s*\(|\bpytest\.raises\b",
    re.MULTILINE,
)
_SKIPS = re.compile(
    r"@?\b(?:pytest\.mark\.(?:skip|skipif|xfail)|unittest\.(?:skip\w*|expectedFailure)"
    r"|pytest\.skip|self\.skipTest)\b"
)
_NODE_FILE = re.compile(r"\.[cm]?([jt])sx?$")


def is_test(path: str) -> bool:
    """Whether a file is one of tests, or nothing but settings of theirs."""
    return bool(_TEST_FILE.search(path) or _SETTINGS.search(path))


def changed_tests(
    before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> tuple[tuple[ChangedTest, ...], tuple[str, ...]]:
    """The tests a patch changes, and those it removes.

    `before` and `after`: the texts of all files that it touches; None for one that is not there.
    """
    told: list[ChangedTest] = []
    for path in after:
        old, new = before.get(path), after[path]
        if is_test(path):
            told.append(_compared(path, old, new))
        elif path in _MIXED and _settings(path, old) != _settings(path, new):
            told.append(ChangedTest(path, "settings of the tests changed", weaker=True))
    had = {name for path, text in before.items() if is_test(path) for name in names(path, text)}
    has = {name for path, text in after.items() if is_test(path) for name in names(path, text)}
    gone = sorted(had - has)
    gone += [
        path
        for path, text in after.items()
        if text is None and is_test(path) and not names(path, before.get(path))
    ]
    return tuple(told), tuple(gone)


def _compared(path: str, old: str | None, new: str | None) -> ChangedTest:
    if old is None:
        return ChangedTest(path, "added")
    if new is None:
        return ChangedTest(path, "removed", weaker=True)
    (had, off), (has, now_off) = _counted(path, old), _counted(path, new)
    lost, skips = had - has, now_off - off
    words: list[str] = []
    if lost > 0:
        words.append(f"{lost} assertion{'s' * (lost > 1)} fewer")
    if skips > 0:
        words.append(f"{skips} more skipped")
    return ChangedTest(path, ", ".join(words) or "changed", weaker=bool(words))


def _counted(path: str, text: str) -> tuple[int, int]:
    """How many assertions a file has, and how many tests it skips."""
    dialect = _dialect(path)
    if dialect is None:
        return len(_ASSERTS.findall(text)), len(_SKIPS.findall(text))
    return javascript.strength(text, dialect).asserts, javascript.skipped(text, dialect)


def _dialect(path: str) -> javascript.Dialect | None:
    """How a file is read; None for one that is not JavaScript."""
    found = _NODE_FILE.search(path)
    if found is None:
        return None
    return "typescript" if found[1] == "t" else "javascript"


def names(path: str, text: str | None) -> set[str]:
    """The tests that a file holds, by name."""
    if not text:
        return set()
    if path.endswith(".py"):
        return _python_names(text)
    dialect = _dialect(path)
    return set() if dialect is None else javascript.titles(text, dialect)


def _python_names(text: str) -> set[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^\s*(?:async )?def (test\w*)", text, re.MULTILINE))
    found: set[str] = set()
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and each.name.startswith("test"):
                found.add(f"{prefix}{each.name}")
    return found


def _settings(path: str, text: str | None) -> str:
    """What a mixed file says of tests."""
    text = text or ""
    if path == "package.json":
        return test_script(text) or ""
    if path == "Makefile":
        found = re.search(r"^(?:test|check)\s*:.*(?:\n[\t ].*|\n(?=\n))*", text, re.MULTILINE)
        return found[0] if found else ""
    sections = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    return "".join(s for s in sections if re.match(r"\[tool[.:](pytest|coverage)", s))
