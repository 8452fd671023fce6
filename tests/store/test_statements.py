"""The SQL in the code: written so that every supported Python accepts it."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast

NUMBERED = re.compile(r"[\s(,=]\?\d")
STATEMENT = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b")


def test_no_statement_numbers_its_parameters() -> None:
    """From Python 3.12 on a tuple for them is deprecated."""
    sources = list(Path(str(holdfast.__file__)).parent.rglob("*.py"))
    numbered = [
        f"{source.name}: {line.strip()}"
        for source in sources
        for text in [source.read_text(encoding="utf-8")]
        if STATEMENT.search(text)
        for line in text.splitlines()
        if NUMBERED.search(line)
    ]
    assert len(sources) > 100
    assert numbered == []
