"""Long output made short: its beginning and its end, with what was left out said."""

from __future__ import annotations

MOST = 16_000


def both_ends(text: str, most: int = MOST) -> str:
    """At most so many characters; the end gets more of them than the beginning."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most - most // 4) :]
    left = len(text) - len(head) - len(tail)
    return f"{head}\n… {left:,} characters left out …\n{tail}"
