"""The tests of a node file as pieces of its text: `test("title", …)`, from `test` to its end.

Not a parser: strings, templates, comments and regular expressions are passed over, and brackets
counted. Where that does not come out even, there are no pieces, and a file is taken whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TEST = re.compile(r"\b(?:test|it)(?:\.\w+)?\s*\(\s*(['\"`])((?:(?!\1).)*)\1")
_IMPORT = re.compile(r"^import\b[^;\n]*['\"][^'\"\n]+['\"];?[ \t]*$", re.MULTILINE)
_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`"
    r"|(?<=[(,=:\[!&|?{};\n])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/\w*",
    re.DOTALL,
)
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Piece:
    """One test, where it stands."""

    start: int
    end: int
    text: str


def titles(code: str) -> set[str]:
    """The titles of a file's tests."""
    return {match[2] for match in _TEST.finditer(code)}


def imports(code: str) -> list[str]:
    """The lines that import something."""
    return [match[0].strip() for match in _IMPORT.finditer(code)]


def tests(code: str) -> dict[str, Piece] | None:
    """Each test by its title; None if they can't be told apart."""
    found: dict[str, Piece] = {}
    for match in _TEST.finditer(code):
        end = _end_of_call(code, code.index("(", match.start()))
        if end is None or match[2] in found:
            return None
        found[match[2]] = Piece(match.start(), end, code[match.start() : end])
    return found


def _end_of_call(code: str, start: int) -> int | None:
    """Behind the bracket that closes the one at `start`."""
    opened: list[str] = []
    place = start
    while place < len(code):
        skipped = _SKIPPED.match(code, place)
        if skipped:
            place = skipped.end()
            continue
        character = code[place]
        place += 1
        if character in _OPENING:
            opened.append(_CLOSING[_OPENING.index(character)])
        elif character in _CLOSING:
            if not opened or opened.pop() != character:
                return None
            if not opened:
                return place
    return None


def is_balanced(code: str) -> bool:
    """Whether no bracket, string, template or comment is left open."""
    opened: list[str] = []
    place = 0
    while place < len(code):
        skipped = _SKIPPED.match(code, place)
        if skipped and skipped.end() > place:
            place = skipped.end()
            continue
        character = code[place]
        if character == "`" or code.startswith("/*", place):
            return False
        place += 1
        if character in _OPENING:
            opened.append(_CLOSING[_OPENING.index(character)])
        elif character in _CLOSING and (not opened or opened.pop() != character):
            return False
    return not opened


def replaced(
    code: str, pieces: Mapping[str, Piece], texts: Mapping[str, str], needed: list[str]
) -> str:
    """The file with some of its pieces replaced, and with imports that it has not yet."""
    for title in sorted(texts, key=lambda title: -pieces[title].start):
        piece = pieces[title]
        code = code[: piece.start] + texts[title] + code[piece.end :]
    known = {line.rstrip(";") for line in imports(code)}
    missing = [line for line in needed if line.rstrip(";") not in known]
    return "\n".join([*missing, code])
