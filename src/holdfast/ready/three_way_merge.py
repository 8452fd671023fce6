"""Merging three ways, by lines: what it was, what one made of it, what the other did.

Lines that only one side changed are taken from that side. Where both changed the same place, both
stand there between markers, so that no line of either is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

MINE, MIDDLE, THEIRS = "<<<<<<< yours", "=======", ">>>>>>> the template's"


def merge(base: str, mine: str, theirs: str) -> tuple[str, bool]:
    """The merged text, and whether there are places where both stand."""
    if mine in (base, theirs):
        return theirs, False
    if theirs == base:
        return mine, False
    old, one, two = (text.splitlines(keepends=True) for text in (base, mine, theirs))
    merged: list[str] = []
    clash = False
    o = a = b = 0
    for start, at_one, at_two, size in _common(old, one, two):
        clash |= _place(merged, old[o:start], one[a:at_one], two[b:at_two])
        merged += old[start : start + size]
        o, a, b = start + size, at_one + size, at_two + size
    clash |= _place(merged, old[o:], one[a:], two[b:])
    return "".join(merged), clash


def _place(merged: list[str], old: list[str], one: list[str], two: list[str]) -> bool:
    """Add what stands between two common pieces; whether both sides changed it."""
    if one in (old, two):
        merged += two
    elif two == old:
        merged += one
    else:
        merged += [f"{MINE}\n", *_ended(one), f"{MIDDLE}\n", *_ended(two), f"{THEIRS}\n"]
        return True
    return False


def _ended(lines: list[str]) -> list[str]:
    """The lines, the last with a line break, so that a marker begins a line."""
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]


def _common(old: list[str], one: list[str], two: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Pieces that all three have: where in each, and how many lines."""
    first = SequenceMatcher(None, old, one, autojunk=False).get_matching_blocks()
    second = SequenceMatcher(None, old, two, autojunk=False).get_matching_blocks()
    i = j = 0
    while i < len(first) and j < len(second):
        x, y = first[i], second[j]
        start, end = max(x.a, y.a), min(x.a + x.size, y.a + y.size)
        if start < end:
            yield start, x.b + start - x.a, y.b + start - y.a, end - start
        if x.a + x.size < y.a + y.size:
            i += 1
        else:
            j += 1
