"""Code in colours, and the difference of two versions. Pure; what comes out is safe HTML.

Pygments marks tokens by class, never by style: the page's policy forbids inline styles.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

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
