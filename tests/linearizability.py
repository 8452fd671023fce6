"""Whether a recorded history of concurrent operations could have happened one after the other.

After Wing and Gong (1993): look for an order of the operations that keeps to real time (one that had
ended before another began comes first) in which each gives what a model gives. What has been tried is
remembered by the operations taken and the model's state (Lowe 2017), so that histories of some
hundred operations of a few clients take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asked, what it was told, and when (by one clock)."""

    client: str
    name: str
    given: Any
    result: Any
    began: float
    ended: float


def order(
    history: Sequence[Operation], first: S, step: Callable[[S, Operation], S | None]
) -> list[Operation] | None:
    """An order in which a history makes sense to a model; None: there is none.

    `step` gives the model's state after an operation, or None if it can't have had its result.
    """
    operations = sorted(history, key=lambda each: each.began)
    taken: list[int] = []
    tried: set[tuple[int, Hashable]] = set()
    # A stack of (operations left as bits, state, candidates still to be tried).
    every = (1 << len(operations)) - 1
    stack: list[tuple[int, S, list[int]]] = [(every, first, _minimal(operations, every))]
    while stack:
        left, state, candidates = stack[-1]
        if not left:
            return [operations[place] for place in taken]
        if not candidates:
            stack.pop()
            if taken:
                taken.pop()
            continue
        place = candidates.pop(0)
        after = step(state, operations[place])
        rest = left & ~(1 << place)
        if after is None or (rest, after) in tried:
            continue
        tried.add((rest, after))
        taken.append(place)
        stack.append((rest, after, _minimal(operations, rest)))
    return None


def _minimal(operations: Sequence[Operation], left: int) -> list[int]:
    """Those that may come next: none of the others had ended before they began."""
    found: list[int] = []
    earliest = float("inf")
    for place, operation in enumerate(operations):
        if not left >> place & 1:
            continue
        if operation.began > earliest:
            break  # sorted by their beginnings
        found.append(place)
        earliest = min(earliest, operation.ended)
    return [place for place in found if operations[place].began <= earliest]
