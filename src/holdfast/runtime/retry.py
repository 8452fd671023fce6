"""How long to wait before the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, with jitter: 1 s, 2 s, 4 s, … up to a minute, each shortened at random."""

    initial: Duration = 1.0
    factor: float = 2.0
    maximum: Duration = 60.0
    jitter: float = 0.5
    """How much of each delay may be taken off at random: 0 is none, 1 is all of it."""

    def __post_init__(self) -> None:
        if seconds(self.initial) > seconds(self.maximum):
            raise UsageError(f"{self}: the first delay is longer than the longest")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise UsageError(f"{self} makes no sense", hint="factor ≥ 1 and 0 ≤ jitter ≤ 1")

    def delay(self, attempt: int, luck: float) -> float:
        """Seconds to wait after a failed attempt; `luck` is a random number below 1."""
        # Beyond 2**60 the maximum has long been reached; larger exponents would overflow.
        whole = seconds(self.initial) * self.factor ** min(attempt - 1, 60)
        return min(whole, seconds(self.maximum)) * (1 - self.jitter * luck)


def as_backoff(value: Backoff | Duration) -> Backoff:
    """A Backoff, from one or from its initial delay."""
    return value if isinstance(value, Backoff) else Backoff(initial=value)
