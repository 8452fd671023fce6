"""The name that was probably meant: for the hints of errors about names that there are not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LEAST = 0.5
"""Share of two names that must fit for one to be meant by the other."""


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The nearest of the known names, if one is near.

    Two letters in the wrong order are the likeliest slip, which difflib takes for a greater one
    than a letter too many: `rusn` is `runs`, not `run`.

    >>> near_name("rusn", ["run", "runs"])
    'runs'
    """
    names = sorted(known)
    swapped = {name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(len(name) - 1)}
    for each in names:
        if each in swapped:
            return each
    near = difflib.get_close_matches(name, names, 1, LEAST)
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint: the name that was probably meant, or something else that helps."""
    near = near_name(name, known)
    return otherwise if near is None else f"did you mean {near!r}?"
