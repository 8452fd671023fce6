"""When a schedule fires: `cron("0 7 * * MON-FRI", tz="Europe/Berlin")` and `every("15m")`.

Pure arithmetic: moments in, moments out. What the five fields mean, and what happens to them when
clocks are put forward or back, is cronsim's to say, which does as Debian's cron does: a job at a
fixed time runs once on such a day (right after the gap if its time is in it), and one that runs
every so often (`*` in its minute or hour) follows the time that passes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError
from holdfast.records.schedules import CATCH_UPS, OVERLAPS, CatchUp, Overlap

LEAST_PERIOD = 1.0
FIRST_WINDOW = 3600.0


@dataclass(frozen=True)
class Cron:
    """Moments by the five fields of cron (or six, seconds first), in a time zone."""

    fields: str
    tz: str = "UTC"

    def after(self, moment: float) -> float | None:
        """The first moment behind one; None: there is none within 50 years."""
        zone = zone_of(self.tz)
        found = CronSim(self.fields, datetime.fromtimestamp(moment, UTC).astimezone(zone))
        for at in found:
            # In the hour that comes twice cronsim begins with its first occurrence.
            if at.timestamp() > moment:
                return at.timestamp()
        return None

    def __str__(self) -> str:
        return f"{self.fields} {self.tz}"


@dataclass(frozen=True)
class Every:
    """A moment every so many seconds, counted from 1970: the same for all processes."""

    period: float

    def after(self, moment: float) -> float:
        return (math.floor(moment / self.period) + 1) * self.period

    def __str__(self) -> str:
        return f"every {self.period:g}"


Timing = Cron | Every


@lru_cache(maxsize=1000)
def parse_timing(text: str) -> Timing:
    """A timing as it is stored: fields and time zone, or `every` and seconds."""
    words = text.split()
    if words[:1] == ["every"] and len(words) == 2:
        try:
            return _every(float(words[1]))
        except ValueError:
            return _every(seconds(words[1]))
    if len(words) in (6, 7) and _is_zone(words[-1]):
        return _cron(" ".join(words[:-1]), words[-1])
    return _cron(text, "UTC")


def _is_zone(word: str) -> bool:
    return word[0].isalpha() and word.upper() not in {
        "SUN",
        "MON",
        "TUE",
        "WED",
        "THU",
        "FRI",
        "SAT",
    }


def _cron(fields: str, tz: str) -> Cron:
    zone_of(tz)
    made = Cron(" ".join(fields.split()).upper(), tz)
    try:
        if made.after(0.0) is not None:
            return made
        problem = "no day fits it"
    except CronSimError as error:
        problem = str(error)
    raise UsageError(
        f"{fields!r} is no time for cron: {problem}",
        hint="minute hour day-of-month month day-of-week, as in '0 7 * * MON-FRI'",
    )


def _every(period: float) -> Every:
    if not LEAST_PERIOD <= period < float("inf"):
        raise UsageError(f"a schedule can't fire every {period:g} s", hint="at most once a second")
    return Every(period)


@lru_cache(maxsize=200)
def zone_of(name: str) -> ZoneInfo:
    """A time zone of the IANA database."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise UsageError(
            f"there is no time zone {name!r} here",
            hint="a name such as Europe/Berlin; a system without time zones has a package of "
            "them, tzdata",
        ) from error


def moments(timing: Timing, after: float, until: float) -> Iterator[float]:
    """The moments behind one and up to another, in order."""
    at = timing.after(after)
    while at is not None and at <= until:
        yield at
        at = timing.after(at)


def latest(timing: Timing, after: float, until: float) -> float | None:
    """The last moment of a stretch of time, however many there are in it."""
    window = FIRST_WINDOW
    while True:
        begin = max(after, until - window)
        last = None
        for moment in moments(timing, begin, until):
            last = moment
        if last is not None or begin == after:
            return last
        window *= 8


def put_off(name: str, moment: float, jitter: float) -> float:
    """When a firing is to be made: the same in every process, and spread over the jitter."""
    if not jitter:
        return moment
    digest = hashlib.blake2b(f"{name}\n{moment:.3f}".encode(), digest_size=8).digest()
    return moment + jitter * int.from_bytes(digest) / 2**64


# --- what users write ---


@dataclass(frozen=True)
class ScheduleSpec:
    """A schedule as it is declared: `cron(…)` or `every(…)`."""

    timing: Timing
    name: str | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"
    jitter: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.overlap not in OVERLAPS:
            raise UsageError(f"overlap={self.overlap!r}", hint=f"one of {', '.join(OVERLAPS)}")
        if self.catch_up not in CATCH_UPS:
            raise UsageError(f"catch_up={self.catch_up!r}", hint=f"one of {', '.join(CATCH_UPS)}")
        if self.catch_up == "all" and self.overlap in ("skip", "cancel"):
            raise UsageError(
                f"catch_up='all' with overlap={self.overlap!r} would not make up for all: they "
                "come at once",
                hint="overlap='queue' has them run one after the other, 'allow' at once",
            )


def cron(
    fields: str,
    tz: str = "UTC",
    *,
    name: str | None = None,
    overlap: Overlap = "skip",
    catch_up: CatchUp = "one",
    jitter: Duration = 0.0,
    arguments: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> ScheduleSpec:
    """A schedule by the fields of cron: minute, hour, day of the month, month, day of the week.

    `tz`: the time zone whose clock is meant; days on which clocks are changed are as in Debian's
    cron. `name`: by default the workflow's. `overlap`: what a firing does while the run before is
    under way: "skip" it (the default), "queue" it behind that one, "cancel" that one, or "allow"
    both. `catch_up`: what is made up for after nobody was there: "one" (the default: the latest),
    "all", or "skip" for none. `jitter`: put each firing off by up to so long. `arguments`: the
    workflow's, by name.

    >>> @workflow(schedule=cron("0 7 * * MON-FRI", tz="Europe/Berlin"))
    ... async def report() -> None: ...
    """
    return ScheduleSpec(
        _cron(fields, tz),
        name,
        overlap,
        catch_up,
        seconds(jitter),
        arguments or {},
        attributes or {},
    )


def every(
    period: Duration,
    *,
    name: str | None = None,
    overlap: Overlap = "skip",
    catch_up: CatchUp = "one",
    jitter: Duration = 0.0,
    arguments: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> ScheduleSpec:
    """A schedule that fires every so often; the options are those of `cron`.

    >>> @workflow(schedule=every("15m", jitter="1m"))
    ... async def sync() -> None: ...
    """
    return ScheduleSpec(
        _every(seconds(period)),
        name,
        overlap,
        catch_up,
        seconds(jitter),
        arguments or {},
        attributes or {},
    )
