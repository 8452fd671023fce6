"""The rows of a run's timeline: steps in their rounds, with bars, marks and cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector.timeline import Axis, Piece, Stretch, axis_of, busy_seconds
from holdfast.store.inspection import CallRow
from holdfast.store.ledger import CallTotals

ROWS = 300
"""Rows on one page of a timeline."""
BINS = 100
"""Columns of the overview of a run that has more."""


@dataclass(frozen=True)
class Mark:
    """A moment on a bar: the first token of a model's answer, or the end of a failed attempt."""

    at: float
    kind: Literal["token", "retry"]
    label: str


@dataclass(frozen=True)
class Line:
    """A step's row."""

    step: StepRecord
    pieces: list[Piece]
    marks: list[Mark]
    folds: list[Stretch]
    tokens: int
    cost: int | None
    calls: int
    seconds: float
    depth: int


@dataclass
class Round:
    """The steps of one attempt of a loop; or steps that belong to none."""

    number: int | None
    lines: list[Line]
    bar: Piece | None = None
    seconds: float = 0.0
    tokens: int = 0
    cost: int = 0

    @property
    def status(self) -> str:
        """How the round went: by what in it went wrong, or is still under way."""
        states = [line.step.outcome for line in self.lines]
        for state in ("failed", "timed out", "not passed", "running", "retrying", "waiting"):
            if state in states:
                return state
        return "cancelled" if "cancelled" in states else "completed"


@dataclass(frozen=True)
class Bin:
    """A column of the overview: how many steps began in it, and whether one went wrong."""

    left: float
    width: float
    height: float
    wrong: bool


@dataclass
class Outline:
    """What the timeline draws."""

    axis: Axis
    rounds: list[Round]
    first: int
    """The place of the first row that is shown."""
    total: int
    bins: list[Bin] = field(default_factory=list[Bin])
    shown: Piece | None = None
    """On the overview: the part that the rows below are of."""

    @property
    def last(self) -> int:
        return self.first + sum(len(round.lines) for round in self.rounds)

    @property
    def lines(self) -> Iterable[Line]:
        return (line for round in self.rounds for line in round.lines)


def busy_spans(steps: Sequence[StepRecord], now: float) -> list[tuple[float, float]]:
    """When something was worked on: steps without their backoff; children count as work."""
    spans: list[tuple[float, float]] = []
    for step in steps:
        if not step.busy:
            continue
        spans += [(attempt.started_at, attempt.ended_at) for attempt in step.tries]
        end = now if step.ended_at is None else step.ended_at
        if end >= step.attempt_from:
            spans.append((step.attempt_from, end))
    return spans


def outline_of(
    steps: Sequence[StepRecord],
    calls: Sequence[CallRow],
    totals: Mapping[str, CallTotals],
    begin: float,
    end: float,
    first: int = 0,
    rows: int = ROWS,
) -> Outline:
    """The rows from `first` on, on an axis of their own time."""
    shown = steps[first : first + rows]
    all_shown = len(shown) == len(steps)
    if shown and not all_shown:
        begin, end = _extent(shown, end)
    axis = axis_of(begin, end, busy_spans(shown, end))
    by_step: dict[str, list[CallRow]] = {}
    for call in calls:
        by_step.setdefault(call.step_key or "", []).append(call)
    lines = [
        _line(step, by_step.get(step.key, []), totals.get(step.key, CallTotals()), axis, end)
        for step in shown
    ]
    outline = Outline(axis, _rounds(lines, axis, end), first, len(steps))
    if not all_shown:
        _overview(outline, steps, shown, end)
    return outline


def _extent(steps: Sequence[StepRecord], now: float) -> tuple[float, float]:
    ends = [now if step.ended_at is None else step.ended_at for step in steps]
    return min(step.started_at for step in steps), max(ends)


def _line(
    step: StepRecord, calls: Sequence[CallRow], totals: CallTotals, axis: Axis, now: float
) -> Line:
    end = now if step.ended_at is None else step.ended_at
    pieces: list[Piece] = []
    marks: list[Mark] = []
    for attempt in step.tries:
        pieces.append(axis.piece(attempt.started_at, attempt.ended_at, "failed"))
        label = f"attempt {attempt.number} failed"
        marks.append(Mark(axis.place(attempt.ended_at), "retry", label))
        resumed = min(attempt.next_at or attempt.ended_at, end)
        if resumed > attempt.ended_at:
            pieces.append(axis.piece(attempt.ended_at, resumed, "backoff"))
    if end >= step.attempt_from:
        kind = "wait" if not step.busy else "failed" if step.went_wrong else "work"
        if step.ended_at is None and step.busy:
            kind = "open"
        pieces.append(axis.piece(step.attempt_from, end, kind))
    for call in calls:
        if call.first_token is not None:
            at = call.started_at + call.first_token
            marks.append(Mark(axis.place(at), "token", "first token"))
    return Line(
        step,
        pieces,
        marks,
        [] if step.busy else axis.folds_within(step.started_at, end),
        totals.tokens,
        totals.cost if totals.calls > totals.unpriced + totals.open else None,
        totals.calls,
        end - step.started_at,
        min(step.key.partition("/")[0].count("."), 4),
    )


def _rounds(lines: Sequence[Line], axis: Axis, now: float) -> list[Round]:
    """Rows in the order they began, those of one attempt of a loop together.

    What says no attempt (a wait, a timer) belongs to a round if the round goes on after it.
    """
    rounds: list[Round] = []
    between: list[Line] = []
    for line in lines:
        number = line.step.round
        if number is None:
            between.append(line)
            continue
        if rounds and rounds[-1].number == number:
            rounds[-1].lines += between
        else:
            if between:
                rounds.append(Round(None, between))
            rounds.append(Round(number, []))
        between = []
        rounds[-1].lines.append(line)
    if between:
        rounds.append(Round(None, between))
    for round in rounds:
        begin, end = _extent([line.step for line in round.lines], now)
        round.bar = axis.piece(begin, end, "group")
        round.seconds = end - begin
        round.tokens = sum(line.tokens for line in round.lines)
        round.cost = sum(line.cost or 0 for line in round.lines)
    return rounds


def _overview(
    outline: Outline, steps: Sequence[StepRecord], shown: Sequence[StepRecord], now: float
) -> None:
    """Columns over the whole run, and where on it the shown rows are."""
    begin, end = _extent(steps, now)
    axis = axis_of(begin, end, busy_spans(steps, now))
    counts, wrong = [0] * BINS, [False] * BINS
    for step in steps:
        place = min(int(axis.place(step.started_at) * BINS / 100), BINS - 1)
        counts[place] += 1
        wrong[place] = wrong[place] or step.went_wrong
    most = max(counts)
    width = 100 / BINS
    outline.bins = [
        Bin(
            round(place * width, 3), round(width * 0.8, 3), max(100 * count / most, 6), wrong[place]
        )
        for place, count in enumerate(counts)
        if count
    ]
    outline.shown = axis.piece(*_extent(shown, now), "group")


def worked(steps: Sequence[StepRecord], now: float) -> float:
    """Seconds in which the run did something, rather than wait."""
    return busy_seconds(busy_spans(steps, now))
