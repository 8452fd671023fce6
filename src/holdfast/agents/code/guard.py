"""Correcting tests without weakening them.

Only tests that failed may change, none may go, and none may assert less. In Python the passing
tests are kept to the letter; for node, where the file is taken whole, their titles and the
number of assertions are held against the old ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holdfast.agents.code.languages import Language

_NODE_TITLE = re.compile(r"\b(?:test|it)\s*(?:\.\w+)?\(\s*(['\"`])(.*?)\1", re.DOTALL)


def corrected(language: Language, old: str, new: str, failing: Sequence[str]) -> str | None:
    """The tests with the failing ones taken from `new`; None if that would weaken them."""
    if language.name == "python":
        named = {name.partition("[")[0] for name in failing} & set(_tests(old))
        if named:
            return _merged(old, new, named)
    if len(language.asserts.findall(new)) < len(language.asserts.findall(old)):
        return None
    if language.name == "python":
        kept = set(_tests(old)) <= set(_tests(new))
    else:
        kept = _titles(old) <= _titles(new)
    return new if kept else None


def _titles(code: str) -> set[str]:
    return {match[1] for match in _NODE_TITLE.findall(code)}


def _tests(code: str) -> dict[str, tuple[int, int, int]]:
    """Each test of a Python file: its first and last line, and how often it asserts."""
    found: dict[str, tuple[int, int, int]] = {}
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and each.name.startswith("test"):
                first = min([each.lineno, *(d.lineno for d in each.decorator_list)])
                source = ast.get_source_segment(code, each) or ""
                found[f"{prefix}{each.name}"] = (
                    first, each.end_lineno or first, _asserts(source),
                )  # fmt: skip
    return found


def _asserts(source: str) -> int:
    return len(re.findall(r"^\s*assert\b|\.assert[A-Z]\w*\(|\braises\b", source, re.MULTILINE))


def _merged(old: str, new: str, failing: set[str]) -> str | None:
    """The old file with the failing tests' lines replaced by the new ones."""
    before, after = _tests(old), _tests(new)
    if not failing <= set(after):
        return None
    lines, fresh = old.splitlines(), new.splitlines()
    for name in sorted(failing, key=lambda name: -before[name][0]):
        first, last, asserts = before[name]
        start, end, now = after[name]
        if now < asserts:
            return None
        lines[first - 1 : last] = fresh[start - 1 : end]
    missing = [line for line in fresh if _is_import(line) and line not in lines]
    return "\n".join([*missing, *lines]).strip() + "\n"


def _is_import(line: str) -> bool:
    return re.match(r"(import \w|from (?!__future__)[\w.]+ import )", line) is not None
