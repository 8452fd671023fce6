"""A run's timeline: moments as places on an axis, steps as rows of bars. Pure functions.

Places are percentages of the drawing's width. Where nothing is worked on for long, the axis is
folded: the gap gets a narrow place of its own, marked with its length, and what is left of the
width goes to the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector.text_format import brief
from holdfast.store.inspection import CallRow
from holdfast.store.ledger import CallTotals

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
                place = round(stretch.left + part * (stretch.right - stretch.left), 3)
                return min(place, 100.0)  # widths add up to a little more, by their rounding
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


# --- child runs: their steps below the row that stands for them ---

NESTED_ROWS = 150
"""Rows of child runs on one page."""
DEEPEST = 3
"""Levels of child runs that are shown below one another."""


@dataclass(frozen=True)
class Child:
    """A child run, as far as the page of its parent shows it."""

    run_id: str
    steps: list[StepRecord]
    calls: list[CallRow]
    step_totals: dict[str, CallTotals]
    totals: CallTotals


def nest(outline: Outline, children: Mapping[str, Child], now: float) -> None:
    """Put the steps of child runs below the rows of those who started them, on the same axis."""
    room = NESTED_ROWS

    def below(line: Line, level: int) -> Iterable[Line]:
        nonlocal room
        child = children.get(line.step.child_id or "") if line.step.kind == "child" else None
        if child is None or level > DEEPEST:
            yield line
            return
        shown = child.steps[: max(room, 0)]
        room -= len(shown)
        left = len(child.steps) - len(shown)
        yield replace(
            line,
            tokens=child.totals.tokens,
            cost=_cost(child.totals),
            calls=child.totals.calls,
            left_out=left,
        )
        by_step = _by_step(child.calls)
        for step in shown:
            totals = child.step_totals.get(step.key, CallTotals())
            drawn = _line(step, by_step.get(step.key, []), totals, outline.axis, now)
            depth = min(line.depth + 1, 4)
            yield from below(replace(drawn, depth=depth, run_id=child.run_id), level + 1)

    for round in outline.rounds:
        round.lines = [each for line in round.lines for each in below(line, 1)]


def _by_step(calls: Sequence[CallRow]) -> dict[str, list[CallRow]]:
    found: dict[str, list[CallRow]] = {}
    for call in calls:
        found.setdefault(call.step_key or "", []).append(call)
    return found


def _cost(totals: CallTotals) -> int | None:
    """What calls cost; None if that is known of none of them."""
    return totals.cost if totals.calls > totals.unpriced + totals.open else None


# --- the rows: steps in their rounds, with bars, marks and cost ---

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


@dataclass
class Group:
    """Rows that belong together, summed up: an attempt of a loop, a branch of the body."""

    lines: list[Line]
    bar: Piece | None = None
    seconds: float = 0.0
    tokens: int = 0
    cost: int = 0
    name: str = ""
    depth: int = 0

    @property
    def status(self) -> str:
        """How it went: by what in it went wrong, or is still under way."""
        states = [line.step.outcome for line in self.lines]
        for state in ("failed", "timed out", "not passed", "running", "retrying", "waiting"):
            if state in states:
                return state
        return "cancelled" if "cancelled" in states else "completed"

    def sum_up(self, axis: Axis, now: float) -> None:
        """Measure its rows, once they are all there."""
        begin, end = _extent([line.step for line in self.lines], now)
        self.bar = axis.piece(begin, end, "group")
        self.seconds = end - begin
        self.tokens = sum(line.tokens for line in self.lines)
        self.cost = sum(line.cost or 0 for line in self.lines)


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
    opens: list[Group] = field(default_factory=list[Group])
    """The branches of the body that begin with this row."""
    run_id: str = ""
    """The child run whose row it is; none: the run's own."""
    left_out: int = 0
    """Steps of the child run that this row stands for which are not shown below it."""


@dataclass
class Round(Group):
    """The steps of one attempt of a loop; or, without a number, steps that belong to none."""

    number: int | None = None


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
        return self.first + sum(not line.run_id for line in self.lines)

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
    by_step = _by_step(calls)
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
        _cost(totals),
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
                rounds.append(Round(between))
            rounds.append(Round([], number=number))
        between = []
        rounds[-1].lines.append(line)
    if between:
        rounds.append(Round(between))
    for round in rounds:
        round.lines = _nested(round.lines, axis, now)
        round.sum_up(axis, now)
    return rounds


def _nested(lines: Sequence[Line], axis: Axis, now: float) -> list[Line]:
    """Rows with those of one branch of the body together, below a heading with its name.

    A branch of a single row has no heading: it is told by that row.
    """
    if not any(line.step.branch for line in lines):
        return list(lines)  # one after another, or a journal from before branches had names
    branches: dict[str, Group] = {}
    for line in lines:
        path, _, name = line.step.branch.partition(" ")
        for outer in _enclosing(path):
            branches.setdefault(outer, Group([])).lines.append(line)
        if path:
            branches[path].name = name
    headed = {
        path: group for path, group in branches.items() if group.name and len(group.lines) > 1
    }
    places = {line.step.key: place for place, line in enumerate(lines)}
    begins = {path: places[group.lines[0].step.key] for path, group in headed.items()}

    def own(line: Line) -> list[str]:
        return [path for path in _enclosing(line.step.branch.partition(" ")[0]) if path in headed]

    for path, group in headed.items():
        group.depth = min(sum(outer in headed for outer in _enclosing(path)) - 1, 3)
        group.sum_up(axis, now)
    ordered = sorted(
        lines, key=lambda line: (*(begins[path] for path in own(line)), places[line.step.key])
    )
    found: list[Line] = []
    opened: set[str] = set()
    for line in ordered:
        within = own(line)
        opens = [headed[path] for path in within if path not in opened]
        opened.update(within)
        found.append(replace(line, depth=min(len(within), 4), opens=opens))
    return found


def _enclosing(path: str) -> list[str]:
    """A branch and those around it, outermost first: 0.1 and 0.1.2 of 0.1.2."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts) + 1)]


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
