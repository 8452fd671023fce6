"""The timeline's arithmetic: from moments to places on an axis. Pure functions.

Places are percentages of the drawing's width. Where nothing is worked on for long, the axis is
folded: the gap gets a narrow place of its own, marked with its length, and what is left of the
width goes to the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.server.inspector.text_format import brief

FOLD_WIDTH = 6.5
"""Per cent of the width that a folded gap gets, while there are few of them."""
FOLDS_WIDTH = 35.0
"""Per cent that all of them get at most."""
FOLD_SHARE = 0.4
"""A gap is folded if it is longer than this part of the time that is not idle…"""
FOLD_SECONDS = 1.0
"""…and than this."""
MOST_FOLDS = 24
MIN_WIDTH = 0.35
"""Per cent: a bar can be seen however short its step was."""
TICKS = 6
NEAREST_TICKS = 9.0
"""Per cent between the labels of two ticks, at least."""
STEPS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
    900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip

Kind = Literal["work", "wait", "backoff", "failed", "open", "group"]


@dataclass(frozen=True)
class Stretch:
    """A piece of the axis: time from `begin` to `end`, drawn from `left` to `right`."""

    begin: float
    end: float
    left: float
    right: float
    folded: bool = False

    @property
    def label(self) -> str:
        return brief(self.end - self.begin)


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Piece:
    """A part of a bar."""

    left: float
    width: float
    kind: Kind


@dataclass(frozen=True)
class Axis:
    """Where moments are on the drawing."""

    stretches: tuple[Stretch, ...]

    @property
    def folds(self) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.folded]

    @property
    def begin(self) -> float:
        return self.stretches[0].begin

    @property
    def end(self) -> float:
        return self.stretches[-1].end

    def place(self, at: float) -> float:
        """Where a moment is, from 0 to 100."""
        for stretch in self.stretches:
            if at <= stretch.end:
                span = stretch.end - stretch.begin
                part = 0.0 if span <= 0 else (max(at, stretch.begin) - stretch.begin) / span
                return round(stretch.left + part * (stretch.right - stretch.left), 3)
        return 100.0

    def piece(self, begin: float, end: float, kind: Kind) -> Piece:
        """The part of a bar for a span of time, wide enough to be seen."""
        left, right = self.place(begin), self.place(end)
        width = max(right - left, MIN_WIDTH)
        return Piece(round(min(left, 100.0 - width), 3), round(width, 3), kind)

    def folds_within(self, begin: float, end: float) -> list[Stretch]:
        """The folded gaps that a span of time lies across."""
        return [fold for fold in self.folds if begin < fold.end and end > fold.begin]

    def ticks(self) -> list[Tick]:
        """Round times since the beginning, where there is room for them."""
        open = [stretch for stretch in self.stretches if not stretch.folded]
        shown = sum(stretch.end - stretch.begin for stretch in open)
        every = next((step for step in STEPS if shown / step <= TICKS), STEPS[-1])
        found: list[Tick] = [Tick(0.0, "0")]
        for stretch in open:
            first = int((stretch.begin - self.begin) // every) + 1
            last = int((stretch.end - self.begin) // every)
            for number in range(first, min(last, first + 10 * TICKS) + 1):
                since = number * every
                at = self.place(self.begin + since)
                label = _label(since, every)
                # Behind a fold, ticks may round to what was said before it.
                if at - found[-1].at >= NEAREST_TICKS and at <= 97 and label != found[-1].label:
                    found.append(Tick(at, label))
        return found


def _label(since: float, every: float) -> str:
    """How long after the beginning; past a minute as a clock, where seconds tell ticks apart."""
    if every >= 60 or since < 60:
        return brief(since)
    minutes, seconds = divmod(round(since), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def axis_of(begin: float, end: float, busy: Sequence[tuple[float, float]]) -> Axis:
    """The axis from `begin` to `end`, with the gaps between the busy spans folded if long."""
    end = max(end, begin + 0.001)
    gaps = _gaps(begin, end, busy)
    total = end - begin
    # The longest first: each fold makes what is left shorter, so that smaller ones show.
    folded: list[tuple[float, float]] = []
    left = total
    for gap in sorted(gaps, key=lambda found: found[0] - found[1]):
        span = gap[1] - gap[0]
        rest = left - span
        if rest <= 0 or span < FOLD_SECONDS or span < FOLD_SHARE * rest:
            break
        if len(folded) == MOST_FOLDS:
            break
        folded.append(gap)
        left = rest
    return Axis(tuple(_stretches(begin, end, sorted(folded), left)))


def _gaps(
    begin: float, end: float, busy: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The spans in which nothing is worked on."""
    gaps: list[tuple[float, float]] = []
    reached = begin
    for from_, to in sorted(busy):
        if from_ > reached:
            gaps.append((reached, min(from_, end)))
        reached = max(reached, to)
    if reached < end:
        gaps.append((reached, end))
    return gaps


def _stretches(
    begin: float, end: float, folds: Sequence[tuple[float, float]], shown: float
) -> list[Stretch]:
    width = min(FOLD_WIDTH, FOLDS_WIDTH / len(folds)) if folds else 0.0
    scale = (100.0 - width * len(folds)) / shown
    found: list[Stretch] = []
    at, left = begin, 0.0
    for from_, to in [*folds, (end, end)]:
        if from_ > at:
            right = left + (from_ - at) * scale
            found.append(Stretch(at, from_, left, right))
            left = right
        if to > from_:
            found.append(Stretch(from_, to, left, left + width, folded=True))
            left += width
        at = to
    if not found[-1].folded:
        last = found.pop()
        found.append(Stretch(last.begin, last.end, last.left, 100.0))
    return found


def busy_seconds(busy: Sequence[tuple[float, float]]) -> float:
    """The time in which something was worked on, what is parallel counted once."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(busy):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
