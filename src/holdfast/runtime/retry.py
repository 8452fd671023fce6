"""Whether a failed attempt is followed by another, and after how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

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
        try:
            whole = seconds(self.initial) * self.factor ** min(attempt - 1, 60)
        except OverflowError:
            whole = seconds(self.maximum)
        return min(whole, seconds(self.maximum)) * (1 - self.jitter * luck)


def as_backoff(value: Backoff | Duration) -> Backoff:
    """A Backoff, from one or from its initial delay."""
    return value if isinstance(value, Backoff) else Backoff(initial=value)


Errors = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Any], bool]
"""Which errors are meant: a class, several, or a predicate."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Which errors of a step are worth another attempt: `retry_on`, but not `give_up_on`."""

    retry_on: Errors | None = None
    give_up_on: Errors | None = None

    def __post_init__(self) -> None:
        for name, errors in (("retry_on", self.retry_on), ("give_up_on", self.give_up_on)):
            if errors is not None and not _are_errors(errors) and not _is_predicate(errors):
                raise UsageError(
                    f"{name}={errors!r} names no errors",
                    hint="give exception classes, or a function of the error",
                )

    def allow(self, error: BaseException) -> bool:
        """Whether to try again after this error; raises what a predicate raises."""
        if self.give_up_on is not None and _meant(self.give_up_on, error):
            return False
        return self.retry_on is None or _meant(self.retry_on, error)


def _are_errors(errors: Any) -> bool:
    kinds = cast("tuple[Any, ...]", errors if isinstance(errors, tuple) else (errors,))
    return bool(kinds) and all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds)


def _is_predicate(errors: Any) -> bool:
    return callable(errors) and not isinstance(errors, type)


def _meant(errors: Any, error: BaseException) -> bool:
    # By type(), for isinstance() asks the error itself, which is foreign code.
    return issubclass(type(error), errors) if _are_errors(errors) else bool(errors(error))
