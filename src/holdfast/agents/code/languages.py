"""The languages the agent writes: names of files, how code is recognised, how it is run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from holdfast.agents.code import javascript
from holdfast.agents.code.records import LanguageName
from holdfast.errors import UsageError


@dataclass(frozen=True, slots=True)
class Language:
    """What the agent needs to know of a language."""

    name: LanguageName
    title: str
    runtime: Literal["python", "node"]
    code_file: str
    test_file: str
    fences: frozenset[str]
    """Info strings of fences that hold it."""
    begins: re.Pattern[str]
    """A line that can only be code."""
    tests: re.Pattern[str]
    """What tests hold and programs do not."""
    asserts_bare: re.Pattern[str]
    """An assertion that is in no function."""

    def looks_like_tests(self, code: str) -> bool:
        """Whether it is tests, and not a program that checks itself."""
        if self.tests.search(code) is not None:
            return True
        return self.asserts_bare.search(code) is not None and not self.defines(code)

    def defines(self, code: str) -> frozenset[str]:
        """The names a piece of code defines at its top."""
        return (
            _python_names(code)
            if self.name == "python"
            else javascript.defined_names(code, self.name)
        )


def _python_names(code: str) -> frozenset[str]:
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(re.findall(r"^(?:async def|def|class)\s+(\w+)", code, re.MULTILINE))
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


_lines = partial(re.compile, flags=re.MULTILINE)
_NODE_BEGINS = _lines(
    r"^(import\b.*['\"]|export\b|const\b|let\b|var\b|function\b|async function\b|class\b"
    r"|interface\b|type\s+\w+\s*=|enum\b|//|/\*|['\"]use strict)"
)
_NODE_TESTS = _lines(
    r"^\s*(import\b.*['\"](node:)?(assert|test)(/\w+)?['\"]|.*require\(['\"](node:)?(assert|test)"
    r"|(test|it|describe)\s*\()"
)
_NODE_BARE = _lines(r"^(?:console\.)?assert\b[.\w]*\(")

LANGUAGES: dict[str, Language] = {
    language.name: language
    for language in (
        Language(
            "python", "Python", "python", "solution.py", "test_solution.py",
            frozenset({"python", "py", "python3", "pycon", "py3"}),
            _lines(r"^(import \w|from [\w.]+ import|def \w+\(|async def |class \w+|@\w|#!|# "
                   r"|\"\"\"|'''|[A-Za-z_]\w*(:\s*[\w\[\], .|]+)?\s*=[^=]|assert\b)"),
            _lines(r"^\s*(def test|async def test|class Test|import (pytest|unittest)"
                   r"|from (pytest|unittest|solution) import|import solution)"),
            _lines(r"^assert\b"),
        ),
        Language(
            "typescript", "TypeScript", "node", "solution.ts", "solution.test.ts",
            frozenset({"typescript", "ts", "tsx", "javascript", "js", "mts"}),
            _NODE_BEGINS, _NODE_TESTS, _NODE_BARE,
        ),
        Language(
            "javascript", "JavaScript", "node", "solution.js", "solution.test.js",
            frozenset({"javascript", "js", "mjs", "cjs", "jsx", "node", "typescript", "ts"}),
            _NODE_BEGINS, _NODE_TESTS, _NODE_BARE,
        ),
    )
}  # fmt: skip
_SHORT = {"py": "python", "ts": "typescript", "js": "javascript", "node": "javascript"}


def language_named(name: str) -> Language:
    """The language by its name or its usual short one."""
    found = LANGUAGES.get(_SHORT.get(name.lower(), name.lower()))
    if found is None:
        raise UsageError(f"there is no language {name!r}", hint=f"use {', '.join(LANGUAGES)}")
    return found
