"""What commands print: data to stdout, everything else to stderr.

Stored text comes from programs, models and strangers. None of it reaches the terminal with its
control characters: they are shown as escapes.
"""

from __future__ import annotations

import io
import json as jsonlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from holdfast.errors import HoldfastError

# Controls (C0, DEL, C1), line and paragraph separators, marks that reorder text, and lone
# surrogates, which no encoding can carry.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def prepare() -> None:
    """Let no character that the terminal's encoding lacks end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def plain(text: str) -> str:
    """Text that is safe to print on one line: `\\x1b[2J` is shown, not obeyed."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def short(text: str, width: int) -> str:
    """Safe text, cut to a width."""
    safe = plain(text[: 4 * width])
    return safe if len(safe) <= width and len(text) <= 4 * width else f"{safe[: width - 1]}…"


def show_json(data: Any) -> None:
    """Print data for programs."""
    text = jsonlib.dumps(data, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    print(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def show_error(error: HoldfastError, *, json: bool) -> None:
    """Print an error: as JSON to stdout, or as text to stderr."""
    if json:
        body = {"kind": error.kind, "message": error.message, "hint": error.hint}
        show_json({"error": body})
        return
    lines = [f"holdfast: {error.message or error.kind}"]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    for line in "\n".join(lines).splitlines():
        note(plain(line))


def note(text: str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr, flush=True)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, states: str = "STATUS"
) -> None:
    """Print rows in aligned columns; the last is not padded, that of states has colours."""
    lines = [list(headings), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for index, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if index and states in headings:
            place = headings.index(states)
            cells[place] = status(line[place], cells[place])
        text = "  ".join(cells).rstrip()
        print(dim(text) if index == 0 else text)


def duration(seconds: float) -> str:
    """A length of time as people read it: 0.12 s, 2.1 s, 1 m 6 s, 2.0 h, 3.5 d."""
    if seconds < 1:
        return f"{max(seconds, 0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m {int(seconds % 60)} s"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} d"


def moment(at: float) -> str:
    """A point in time: 2026-11-15 21:41:42 UTC."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def dim(text: str, stream: TextIO | None = None) -> str:
    """Grey, on a terminal that has colours."""
    return f"\x1b[2m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


SYMBOLS = {
    "completed": "✓",
    "passed": "✓",
    "continued": "✓",
    "failed": "✗",
    "not passed": "✗",
    "stuck": "✗",
    "timed out": "⌛",
    "retrying": "↻",
    "waiting": "…",
    "paused": "◐",
    "running": "…",
    "cancelled": "⊘",
}
"""What stands before a step, run or task in this state; its colour goes by the symbol."""
_COLOURS = {"✓": "32", "✗": "31", "⌛": "33", "↻": "33", "◐": "33", "…": "36", "⊘": "2"}


def mark(symbol: str, stream: TextIO | None = None) -> str:
    """A symbol in its colour, beside which it always stands: for stderr unless said otherwise."""
    return _painted(symbol, _COLOURS.get(symbol), stream or sys.stderr)


def status(word: str, padded: str, stream: TextIO | None = None) -> str:
    """A status or a symbol, padded to its column, in its colour."""
    return _painted(padded, _COLOURS.get(SYMBOLS.get(word, word)), stream or sys.stdout)


def _painted(text: str, colour: str | None, stream: TextIO) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and _colours(stream) else text


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")
