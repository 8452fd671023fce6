"""Code in colours, and the difference of two versions. Pure; what comes out is safe HTML.

Pygments marks tokens by class, never by style: the page's policy forbids inline styles.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from markupsafe import Markup, escape
from pygments import highlight as pygmentize
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.util import ClassNotFound

COLOURED = 100_000
"""Characters; what is longer is shown without colours."""
COMPARED = 4000
"""Lines; longer texts are not compared."""
AROUND = 3
"""Unchanged lines shown around a change."""

BY_ENDING = {
    "py": "python",
    "js": "javascript",
    "mjs": "javascript",
    "ts": "typescript",
    "json": "json",
    "sh": "bash",
    "sql": "sql",
    "md": "markdown",
    "toml": "toml",
    "html": "html",
    "css": "css",
}


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def language_of(filename: str) -> str:
    """The language a file is written in, by its name."""
    return BY_ENDING.get(filename.rpartition(".")[2].lower(), "")


def highlight(text: str, language: str) -> Markup:
    """The text as HTML, coloured if the language is known."""
    lexer = _lexer(language.lower()) if language else None
    if lexer is None or len(text) > COLOURED:
        return escape(text)
    formatter: HtmlFormatter[str] = HtmlFormatter(nowrap=True)
    return Markup(pygmentize(text, lexer, formatter).removesuffix("\n"))  # noqa: S704 - escaped by pygments


def lines(text: str, language: str) -> list[Markup]:
    """The text's lines as HTML; tokens that span lines are closed and opened again by pygments."""
    return [Markup(line) for line in highlight(text, language).split("\n")]  # noqa: S704 - as above


@dataclass(frozen=True)
class DiffLine:
    """A line of a comparison; a gap stands for unchanged lines that are left out."""

    kind: str
    """same, added, removed or gap"""
    html: Markup
    old: int | None = None
    new: int | None = None

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "−"}.get(self.kind, " ")


@dataclass(frozen=True)
class Diff:
    lines: list[DiffLine]
    added: int
    removed: int


def diff(before: str, after: str, language: str) -> Diff | None:
    """What changed between two versions; None if there is nothing to compare, or too much."""
    old, new = before.splitlines(), after.splitlines()
    if before == after or max(len(old), len(new)) > COMPARED:
        return None
    found = list(_compare(old, new, language))
    added = sum(line.kind == "added" for line in found)
    removed = sum(line.kind == "removed" for line in found)
    return Diff(found, added, removed)


def _compare(old: list[str], new: list[str], language: str) -> Iterator[DiffLine]:
    old_html = lines("\n".join(old), language)
    new_html = lines("\n".join(new), language)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    reached = 0
    for group in matcher.get_grouped_opcodes(AROUND):
        if group[0][1] > reached:
            yield DiffLine("gap", Markup(f"{group[0][1] - reached} unchanged"))  # noqa: S704 - a number
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                    yield DiffLine("same", new_html[j], i + 1, j + 1)
                continue
            for i in range(i1, i2):
                yield DiffLine("removed", old_html[i], i + 1)
            for j in range(j1, j2):
                yield DiffLine("added", new_html[j], None, j + 1)
        reached = group[-1][2]
    if reached < len(old):
        yield DiffLine("gap", Markup(f"{len(old) - reached} unchanged"))  # noqa: S704 - a number


# --- unified diffs: files, lines in colours, what was added and removed ---
# A diff is what an agent or a repo says: what does not read as one is shown as text.

SHOWN_LINES = 4000
"""Of one patch; the rest is in the file to download."""
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")


@dataclass
class PatchFile:
    """What a patch does to one file."""

    path: str
    how: str = "changed"
    lines: list[DiffLine] = field(default_factory=list[DiffLine])
    added: int = 0
    removed: int = 0


@dataclass(frozen=True)
class PatchView:
    """A patch, ready to be shown."""

    files: list[PatchFile]
    text: str
    cut: bool
    """Whether there are more lines than are shown."""

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed for file in self.files)


@dataclass(frozen=True)
class RepairView:
    """The result of a run on a repo: its patch, and what the tests said before and after."""

    patch: PatchView
    passed: bool
    verdict: str
    words: str
    """What the agent says of it."""
    before: str | None
    after: str | None
    output: str
    """What the tests printed in the end."""
    tests_changed: list[str]


def patch_text(result: Any) -> str | None:
    """The patch in a run's result, if it has one in the shape that the repo agent returns."""
    text = _object(_object(result).get("patch")).get("text")
    return text if isinstance(text, str) else None


def patch_bytes(result: Any) -> bytes | None:
    """The patch in a run's result, exact to the byte."""
    text, encoding = patch_text(result), _object(_object(result).get("patch")).get("encoding")
    if text is None:
        return None
    return text.encode("latin-1" if encoding == "latin-1" else "utf-8", "replace")


def repair_of(result: Any) -> RepairView | None:
    """A run's result as a repair; None if it is something else."""
    text, found = patch_text(result), _object(result)
    verdict = _object(found.get("verdict"))
    if text is None or not verdict:
        return None
    before, after = _object(found.get("before")), _object(verdict.get("tests"))
    changed = [_object(each) for each in cast("list[Any]", verdict.get("changed_tests") or [])]
    return RepairView(
        view_of(text),
        found.get("passed") is True,
        str(verdict.get("summary", "")),
        str(found.get("summary", "")),
        str(before["summary"]) if "summary" in before else None,
        str(after["summary"]) if "summary" in after else None,
        str(after.get("output", "")),
        [f"{each.get('path')}: {each.get('how')}" for each in changed],
    )


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def view_of(text: str) -> PatchView:
    """A unified diff as files and lines."""
    lines = text.split("\n")
    files: list[PatchFile] = []
    hunk: list[str] = []
    place = (0, 0)
    for line in [*lines[:SHOWN_LINES], "diff --git"]:
        opened = HUNK.match(line)
        if hunk and not line.startswith((" ", "+", "-", "\\")):
            _add_hunk(files[-1], hunk, place)
            hunk = []
        if line.startswith("diff --git "):
            files.append(PatchFile(line.rpartition(" b/")[2]))
        elif files and opened is not None:
            place = (int(opened[1]), int(opened[2]))
            words = escape(opened[3] or f"line {opened[2]}")
            files[-1].lines.append(DiffLine("gap", words))
            hunk = ["@@"]
        elif hunk:
            hunk.append(line)
        elif files:
            _header(files[-1], line)
    return PatchView(files, text, len(lines) > SHOWN_LINES)


def _header(file: PatchFile, line: str) -> None:
    for beginning, how in (
        ("new file", "added"),
        ("deleted file", "removed"),
        ("rename from", "renamed"),
        ("Binary files", "binary"),
        ("GIT binary patch", "binary"),
    ):
        if line.startswith(beginning):
            file.how = how


def _add_hunk(file: PatchFile, hunk: list[str], place: tuple[int, int]) -> None:
    body = [line for line in hunk[1:] if line[:1] in (" ", "+", "-")]
    file.lines += _hunk_lines(body, language_of(file.path), *place)
    file.added += sum(line.startswith("+") for line in body)
    file.removed += sum(line.startswith("-") for line in body)


def _hunk_lines(body: list[str], language: str, old: int, new: int) -> Iterator[DiffLine]:
    before = iter(lines("\n".join(x[1:] for x in body if x[0] != "+"), language))
    after = iter(lines("\n".join(x[1:] for x in body if x[0] != "-"), language))
    for line in body:
        if line[0] == "-":
            yield DiffLine("removed", next(before), old, None)
            old += 1
        elif line[0] == "+":
            yield DiffLine("added", next(after), None, new)
            new += 1
        else:
            next(before)
            yield DiffLine("same", next(after), old, new)
            old, new = old + 1, new + 1
