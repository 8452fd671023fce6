"""Which changes touch the tests, and whether they make them weaker.

A patch may add tests and may change them where the task asks for it, but that is always told;
tests that are gone are never accepted. Told from the files alone: nothing is run here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from holdfast.agents.repo.records import ChangedTest
from holdfast.agents.repo.test_detection import test_script

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
    r"^\s*assert\b|\bself\.assert\w+\s*\(|\bself\.fail\w*\s*\(|\bpytest\.raises\b"
    r"|\b(?:assert|expect|should)\b(?:\.\w+)*\s*\(",
    re.MULTILINE,
)
_SKIPS = re.compile(
    r"@?\b(?:pytest\.mark\.(?:skip|skipif|xfail)|unittest\.(?:skip\w*|expectedFailure)"
    r"|pytest\.skip|self\.skipTest)\b|\b(?:it|test|describe|suite)\.(?:skip|todo|only)\b"
    r"|\b(?:skip|todo)\s*:\s*true\b"
)
_TITLE = re.compile(r"\b(?:test|it)\s*(?:\.\w+)?\(\s*(['\"`])((?:\\.|(?!\1).)*)\1", re.DOTALL)


def is_test(path: str) -> bool:
    """Whether a file is one of tests, or nothing but settings of theirs."""
    return bool(_TEST_FILE.search(path) or _SETTINGS.search(path))


def changed(
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
    lost = len(_ASSERTS.findall(old)) - len(_ASSERTS.findall(new))
    skips = len(_SKIPS.findall(new)) - len(_SKIPS.findall(old))
    words: list[str] = []
    if lost > 0:
        words.append(f"{lost} assertion{'s' * (lost > 1)} fewer")
    if skips > 0:
        words.append(f"{skips} more skipped")
    return ChangedTest(path, ", ".join(words) or "changed", weaker=bool(words))


def names(path: str, text: str | None) -> set[str]:
    """The tests that a file holds, by name."""
    if not text:
        return set()
    if path.endswith(".py"):
        return _python_names(text)
    return {found[1] for found in _TITLE.findall(text)}


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
