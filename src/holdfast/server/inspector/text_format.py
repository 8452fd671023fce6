"""Numbers and times as the pages say them. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime

NANO = 1_000_000_000


def duration(seconds: float | None) -> str:
    """A length of time: 4 ms, 0.31 s, 6.2 s, 1 m 6 s, 2.0 h, 3.5 d."""
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} m {rest} s" if rest else f"{minutes} m"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} d"


def brief(seconds: float) -> str:
    """A length of time in as few characters as possible, for axes and folds: 2 h, 15 m, 0.5 s."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    if seconds >= 1 or seconds == 0:
        return f"{_short(seconds)} s"
    return f"{_short(seconds * 1000)} ms"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def ago(seconds: float) -> str:
    """How long ago, to a glance's precision: now, 12 s, 3 m, 2 h, 5 d."""
    if seconds < 1:
        return "now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def number(value: int | float | None) -> str:
    """A count: 16,550."""
    return "" if value is None else f"{value:,.0f}"


def compact(value: int | float) -> str:
    """A count in a narrow column: 950, 3.1k, 16.6k, 2.4M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}"


def money(nano: int | None) -> str:
    """US dollars from nanodollars: $0.0141, $1.25, $1,204.50; nothing where it is unknown."""
    if nano is None:
        return ""
    dollars = nano / NANO
    if dollars == 0:
        return "$0"
    if dollars < 0.0001:
        return "<$0.0001"
    return f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def size(count: int) -> str:
    """Bytes: 812 B, 3.1 KB, 50.0 MB."""
    if count < 1000:
        return f"{count} B"
    for power, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= power:
            return f"{count / power:.1f} {unit}"
    raise AssertionError(count)


def memory(count: int) -> str:
    """Bytes of memory or disk, which come in powers of two: 512 MiB, 1.5 GiB."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{_short(count / (1 << shift))} {unit}"
    return f"{count} B"


def percent(part: float, whole: float) -> str:
    """A share: 12 %, <1 %."""
    if whole <= 0 or part <= 0:
        return "0 %"
    share = 100 * part / whole
    return "<1 %" if share < 1 else f"{share:.0f} %"


def moment(at: float | None) -> str:
    """A point in time: 2026-11-15 21:41:42."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def machine_time(at: float) -> str:
    """A point in time for programs, and for `<time datetime>`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: float) -> str:
    """The time of day, to the millisecond: 21:41:42.118."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S.%f}"[:-3]


def title(name: str) -> str:
    """A step's name as words: run_tests is `run tests`; what has other marks is left alone."""
    return name.replace("_", " ").strip() if name.replace("_", "").isalnum() else name


def short_id(id: str) -> str:
    """An id in a narrow place: its prefix and last six characters, which tell it apart."""
    prefix, mark, rest = id.partition("_")
    return f"{prefix}_{rest[-6:]}" if mark and len(rest) > 10 else id
