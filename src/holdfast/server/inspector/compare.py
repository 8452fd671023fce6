"""Two runs side by side: their steps in order, with the first difference marked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from holdfast.runtime.step_records import StepRecord
from holdfast.server import views
from holdfast.server.inspector.pages import Page, inspection, mask
from holdfast.server.inspector.payloads import SHOWN_BYTES, Mask, Shown
from holdfast.server.inspector.run import shown
from holdfast.server.inspector.run_data import Loaded, load
from holdfast.server.inspector.runs import status_of
from holdfast.store.inspection import View

ROWS = 300
"""Rows of a comparison: more are counted."""

Read = Callable[[StepRecord, str], bytes | None]
"""A step's input or output, as it is recorded."""


@dataclass(frozen=True)
class Pair:
    """A step of each run with the same key; None where a run has no such step."""

    key: str
    left: StepRecord | None
    right: StepRecord | None
    differs: tuple[str, ...] = ()
    """In what: step, input, outcome, result."""


@dataclass(frozen=True)
class Difference:
    """The first step that differs, with what went in and came out of it in each run."""

    pair: Pair
    left: tuple[Shown | None, Shown | None]
    right: tuple[Shown | None, Shown | None]


def pairs_of(
    left: Sequence[StepRecord], right: Sequence[StepRecord], of_left: Read, of_right: Read
) -> list[Pair]:
    """The steps of both runs by their keys, in the order of the first, then what only it has."""
    others = {step.key: step for step in right}
    known = {step.key for step in left}
    pairs = [
        Pair(
            step.key,
            step,
            others.get(step.key),
            _differs(step, others.get(step.key), of_left, of_right),
        )
        for step in left
    ]
    pairs += [Pair(step.key, None, step, ("step",)) for step in right if step.key not in known]
    return pairs


def _differs(
    left: StepRecord, right: StepRecord | None, of_left: Read, of_right: Read
) -> tuple[str, ...]:
    if right is None or (left.kind, left.name) != (right.kind, right.name):
        return ("step",)
    found: list[str] = []
    if left.kind != "timer" and of_left(left, "input") != of_right(right, "input"):
        found.append("input")
    if left.outcome != right.outcome or str(left.error) != str(right.error):
        found.append("outcome")
    if of_left(left, "output") != of_right(right, "output"):
        found.append("result")
    return tuple(found)


def _reader(view: View, run_id: str) -> Read:
    def read(step: StepRecord, which: str) -> bytes | None:
        seq = step.input_seq if which == "input" else step.output_seq
        if seq is None:
            return None
        found = view.payload(run_id, seq, 0, SHOWN_BYTES)
        # What is longer than is read counts by its beginning and its size.
        return None if found is None else found.data + b"%d" % found.size

    return read


async def compare_page(request: Request) -> Page:
    """The page at /runs/ID/compare/OTHER."""
    now, masked = time.time(), mask(request)
    ids = request.path_params["run_id"], request.path_params["other"]

    def ask(view: View) -> tuple[Loaded, Loaded, list[Pair], Difference | None]:
        left, right = load(view, ids[0]), load(view, ids[1])
        pairs = pairs_of(left.steps, right.steps, _reader(view, ids[0]), _reader(view, ids[1]))
        first = next((pair for pair in pairs if pair.differs), None)
        if first is None:
            return left, right, pairs, None
        sides = [
            _payloads(view, run, step, masked)
            for run, step in ((ids[0], first.left), (ids[1], first.right))
        ]
        return left, right, pairs, Difference(first, sides[0], sides[1])

    left, right, pairs, first = await inspection(request).ask(ask)
    context: dict[str, Any] = {
        "sides": [(each, status_of(each.run), each.totals(now)) for each in (left, right)],
        "pairs": pairs[:ROWS],
        "more": max(len(pairs) - ROWS, 0),
        "different": sum(bool(pair.differs) for pair in pairs),
        "first": first,
        "log": left.log,
    }

    def as_json() -> dict[str, Any]:
        return {
            "runs": [views.run_json(each.run) for each in (left, right)],
            "totals": [views.totals(each.sums) for each in (left, right)],
            "first_difference": None if first is None else first.pair.key,
            "steps": [{"key": pair.key, "differs": list(pair.differs)} for pair in pairs[:ROWS]],
        }

    return Page("compare.html", "Compare runs", "runs", context, as_json)


def _payloads(
    view: View, run_id: str, step: StepRecord | None, masked: Mask
) -> tuple[Shown | None, Shown | None]:
    if step is None:
        return None, None
    output = None
    if step.output_seq is not None:
        output = shown(view, run_id, step.output_seq, masked)
    return shown(view, run_id, step.input_seq, masked), output
