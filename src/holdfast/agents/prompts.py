"""What the models are asked by the code and the repo agent: the texts of prompts/, filled in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

from holdfast.agents.code.languages import Language
from holdfast.agents.command_output import both_ends

if TYPE_CHECKING:
    from holdfast.agents.repo.records import Job

_EXPORTS = {
    "python": "Define the functions and classes at the top of the file, with type hints.",
    "typescript": "Export every function and class that the task asks for (`export function …`).",
    "javascript": "Export every function and class that the task asks for (`export function …`); "
    "the file is an ES module.",
}
_IMPORTS = {
    "python": "Import what you test from it: `from solution import …`.",
    "typescript": 'Import what you test from it: `import { … } from "./solution.ts"`.',
    "javascript": 'Import what you test from it: `import { … } from "./solution.js"`.',
}
_STYLE = {
    "python": "Functions named `test_…` with plain `assert`; pytest runs them, and "
    "`pytest.raises` and `pytest.mark.parametrize` are there.",
    "typescript": '`import test from "node:test"` and `import assert from "node:assert/strict"`; '
    'one `test("…", () => { … })` per case.',
    "javascript": '`import test from "node:test"` and `import assert from "node:assert/strict"`; '
    'one `test("…", () => { … })` per case.',
}


@cache
def text(agent: Literal["code", "repo"], name: str) -> str:
    """A text of an agent's, with places to be filled."""
    place = resources.files("holdfast.agents") / "prompts" / agent / f"{name}.md"
    return place.read_text(encoding="utf-8").strip()


# --- the code agent ---


def _filled(name: str, language: Language, **values: str) -> str:
    """A text with its places filled; one pass, so that what is filled in stays as it is."""
    known = {
        "title": language.title,
        "code_file": language.code_file,
        "test_file": language.test_file,
        "fence": language.name,
        **values,
    }
    return text("code", name).format_map(known)


def for_code(language: Language, packages: Sequence[str]) -> str:
    """The system text for whoever writes the program."""
    more = f", and these packages: {', '.join(packages)}" if packages else ""
    return _filled("code", language, exports=_EXPORTS[language.name], packages=more)


def for_tests(language: Language, packages: Sequence[str] = ()) -> str:
    """The system text for whoever writes the tests."""
    more = f" These packages are there as well: {', '.join(packages)}." if packages else ""
    style = f"{_STYLE[language.name]}{more}"
    return _filled("tests", language, imports=_IMPORTS[language.name], style=style)


def to_write(language: Language, task: str, problem: str | None) -> str:
    """The question for the program; the second time with what was wrong with the answer."""
    return f"{task}{_unusable(language.code_file, problem)}"


def to_fix(
    language: Language,
    task: str,
    code: str,
    tests: str,
    error: str,
    problem: str | None,
    tests_stand: bool,
) -> str:
    """The question after the tests failed."""
    ruled = " That has happened: the tests stand as they are." if tests_stand else ""
    asked = _filled(
        "fix", language, task=task, code=code.rstrip(), tests=tests.rstrip(), error=error,
        ruled=ruled,
    )  # fmt: skip
    return f"{asked}{_unusable(language.code_file, problem)}"


def to_test(language: Language, task: str, code: str, problem: str | None) -> str:
    """The question for the first tests."""
    asked = _filled("tests_for", language, task=task, code=code.rstrip())
    return f"{asked}{_unusable(language.test_file, problem)}"


def to_fix_tests(
    language: Language, task: str, tests: str, error: str, dispute: str, problem: str | None
) -> str:
    """The question after tests turned out to be wrong. It does not show the program."""
    said = f"\nThe author of the program says: {dispute}\n" if dispute else ""
    asked = _filled(
        "tests_fix", language, task=task, tests=tests.rstrip(), error=error, dispute=said
    )
    return f"{asked}{_unusable(language.test_file, problem)}"


def to_extend_tests(
    language: Language, task: str, tests: str, accepted: Sequence[tuple[int, str]]
) -> str:
    """The question after tests accepted wrong programs; each with the line of its mistake.

    It shows these programs, not the one that passed, nor what differs.
    """
    shown = [
        f"```{language.name}\n{_around(code, line, _MOST_LINES)}\n```" for line, code in accepted
    ]
    return _filled(
        "tests_more", language, task=task, tests=tests.rstrip(), programs="\n\n".join(shown)
    )


_MOST_LINES = 120
"""Of a program that tests accepted."""


def _around(code: str, line: int, most: int) -> str:
    lines = code.rstrip().splitlines()
    if len(lines) <= most:
        return "\n".join(lines)
    first = min(max(line - most // 2, 0), len(lines) - most)
    return "\n".join(lines[first : first + most])


def _unusable(file: str, problem: str | None) -> str:
    if problem is None:
        return ""
    return f"\n\nYour last answer could not be used: {problem}. Give the whole {file}."


# --- the repo agent ---


_MOST_BEFORE = 4000


def repo_task(job: Job) -> str:
    """The first question: the task, and how the tests stand."""
    tests, before = "It has no tests that we know how to run.", ""
    if job.base.tests is not None:
        tests = f"Its tests are run with `{job.base.tests.command}`."
    if job.before is not None:
        before = f"Before any change: {job.before.summary}."
        if not job.before.ok:
            before += f"\n\n{both_ends(job.before.output, _MOST_BEFORE)}"
    facts = {"files": job.base.files, "tests": tests, "before": before}
    return job.plan.prompts.task.format(task=job.task, **facts).strip()


def repo_heal(job: Job, problem: str) -> str:
    """What is said after the tests failed on what was called done."""
    return job.plan.prompts.heal.format(problem=problem)
