"""What commands print: data to stdout, everything else to stderr."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.errors import HoldfastError


def show_json(data: Any) -> None:
    """Print data for programs."""
    print(jsonlib.dumps(data, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def show_error(error: HoldfastError, *, json: bool) -> None:
    """Print an error: as JSON to stdout, or as text to stderr."""
    if json:
        body = {"kind": error.kind, "message": error.message, "hint": error.hint}
        show_json({"error": body})
    else:
        print(f"holdfast: {error}", file=sys.stderr)


def note(text: str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in aligned columns; the last column is not padded."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for index, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        text = "  ".join(cells).rstrip()
        print(dim(text) if index == 0 else text)


def dim(text: str) -> str:
    """Grey, on a terminal that has colours."""
    return f"\x1b[2m{text}\x1b[0m" if _colours() else text


def _colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
