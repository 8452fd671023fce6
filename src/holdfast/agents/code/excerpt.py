"""The useful end of an output: bounded, whole lines, with what was left out said."""

from __future__ import annotations

MOST = 4000


def tail(text: str, most: int = MOST) -> str:
    """The last lines of a text, at most so many characters."""
    text = text.strip("\n")
    if len(text) <= most:
        return text
    cut = text[-most:]
    _, newline, whole = cut.partition("\n")
    kept = whole if newline and whole else cut
    return f"[{len(text) - len(kept):,} characters left out]\n{kept}"
