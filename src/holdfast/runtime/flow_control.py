"""Flow control: how fast, in which order and how many at a time the runs of a workflow begin.

What is said here with a workflow goes with each of its runs into the store, which holds to it over
all processes. A key names a parameter of the workflow, with dots a field in it, or is a function of
its arguments: runs with the same value count together, and those of different values take turns.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.durations import Duration, seconds
from holdfast.errors import HoldfastError, UsageError
from holdfast.records.flow import Gather, Pace, Rate, StartRate

if TYPE_CHECKING:
    from holdfast.runtime.codec import Signature
    from holdfast.store.base import NewRun

Key = str | Callable[..., Any]
"""A parameter's name, with dots a field in it, or a function of the arguments."""

MOST_PRIORITY = 86400.0


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many runs of a workflow may be under way at once: in all, and with the same key.

    `key` names a parameter of the workflow, or is a function of its arguments.
    """

    limit: int | None = None
    key: Key | None = None
    per_key: int | None = None

    def __post_init__(self) -> None:
        if (self.key is None) != (self.per_key is None):
            raise UsageError("`key` and `per_key` of Concurrency go together")
        for number in (self.limit, self.per_key):
            if number is not None and number < 1:
                raise UsageError(f"a concurrency of {number} would let nothing run")


@dataclass(frozen=True, slots=True)
class _PerTime:
    """So many in any stretch of `per`: in all, and with the same key."""

    limit: int | None = None
    per: Duration = 1.0
    key: Key | None = None
    per_key: int | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.key is None) != (self.per_key is None):
            raise UsageError(f"`key` and `per_key` of {name} go together")
        if self.limit is None and self.per_key is None:
            raise UsageError(f"{name} without `limit` and `per_key` limits nothing")
        if any(number is not None and number < 1 for number in (self.limit, self.per_key)):
            raise UsageError(f"{name} of less than 1 would let nothing run")
        if seconds(self.per) <= 0:
            raise UsageError(f"{name}: in no time there is no rate", hint='per="1m", for instance')

    def rate(self, number: int | None) -> Rate | None:
        return None if number is None else Rate(number, seconds(self.per))


@dataclass(frozen=True, slots=True)
class Throttle(_PerTime):
    """In any stretch of `per` at most `limit` runs begin, and `per_key` of a key; others wait.

    >>> Throttle(100, per="1m", key="tenant", per_key=20)
    """


@dataclass(frozen=True, slots=True)
class RateLimit(_PerTime):
    """In any stretch of `per` at most `limit` runs are started, and `per_key` of a key.

    A start too many raises TooManyRequests (429 in the API), with the seconds until the next; an
    event too many starts nothing. Schedules and children are not counted.
    """


@dataclass(frozen=True, slots=True)
class Debounce:
    """Begin once there was no other start with the key for `wait`, with the input of the last.

    `at_most`: begin this long after the first, however many come.
    """

    wait: Duration
    key: Key | None = None
    at_most: Duration | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One run for up to `size` events: it is given the list of their payloads.

    It begins with the last of them, or `within` so long after the first. `key` names a field of the
    payload: events with different values go to different runs.
    """

    size: int
    within: Duration
    key: str | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or seconds(self.within) <= 0:
            raise UsageError("a Batch has at least one event, and takes some time")


@dataclass(frozen=True, slots=True)
class Singleton:
    """One run at a time, of the workflow or of each key.

    `when_busy`: "skip" gives whoever starts another the run that is under way; "replace" cancels
    that one, and the new one begins once it has ended.
    """

    key: Key | None = None
    when_busy: Literal["skip", "replace"] = "skip"


@dataclass(frozen=True)
class FlowControl:
    """What is said about the runs of one workflow."""

    function: Callable[..., Any]
    concurrency: Concurrency | None = None
    throttle: Throttle | None = None
    rate_limit: RateLimit | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None
    singleton: Singleton | None = None
    priority: Key | float | None = None

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        concurrency: Concurrency | int | None,
        throttle: Throttle | None,
        rate_limit: RateLimit | None,
        debounce: Debounce | None,
        batch: Batch | None,
        singleton: Singleton | bool,
        priority: Key | Duration | None,
    ) -> FlowControl:
        """Checked, and with what one part says for another."""
        name = function.__qualname__
        if isinstance(concurrency, int):
            concurrency = Concurrency(limit=concurrency)
        one = Singleton() if singleton is True else singleton or None
        if one is not None:
            if concurrency is not None:
                raise UsageError(f"{name} has both singleton and concurrency", hint="choose one")
            if one.key is None:
                concurrency = Concurrency(limit=1)
            else:
                concurrency = Concurrency(key=one.key, per_key=1)
        keys = [each.key for each in (concurrency, throttle) if each is not None and each.key]
        if len(keys) == 2 and keys[0] != keys[1]:
            raise UsageError(
                f"{name} is limited by two keys", hint="concurrency and throttle share one key"
            )
        if sum(each is not None for each in (debounce, batch, one)) > 1:
            raise UsageError(f"{name}: only one of debounce, batch and singleton is possible")
        number = None
        if isinstance(priority, str):
            try:
                number = seconds(priority)  # "2m", not a parameter's name
            except UsageError:
                number = None
        elif priority is not None and not callable(priority):
            number = seconds(priority)
        chosen = number if number is not None else cast("Key | None", priority)
        return cls(function, concurrency, throttle, rate_limit, debounce, batch, one, chosen)

    # --- limits of runs that are there ---

    @property
    def is_plain(self) -> bool:
        """Whether nothing but a limit of concurrency was said."""
        rest = self.throttle, self.rate_limit, self.debounce, self.batch, self.singleton
        return self.priority is None and all(each is None for each in rest)

    @property
    def is_unlimited(self) -> bool:
        return self.concurrency is None and self.throttle is None

    @property
    def run_limit(self) -> int | None:
        return None if self.concurrency is None else self.concurrency.limit

    @property
    def lane_limit(self) -> int | None:
        return None if self.concurrency is None else self.concurrency.per_key

    @property
    def pace(self) -> Pace | None:
        if self.throttle is None:
            return None
        rates = self.throttle
        return Pace(rates.rate(rates.limit), rates.rate(rates.per_key))

    def lane(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The key of a call by which its run is limited, as text."""
        for each in (self.concurrency, self.throttle):
            if each is not None and each.key is not None:
                return self._text(each.key, args, kwargs)
        return None

    # --- what a start comes to ---

    @property
    def gathers(self) -> bool:
        return self.debounce is not None or self.batch is not None

    @property
    def shapes_key(self) -> bool:
        """Whether the runs' keys are for flow control to say."""
        return self.gathers or self.singleton is not None

    def refuse_key(self, name: str) -> None:
        """A run that is one of several starts can't have the key of one of them."""
        if self.shapes_key:
            raise UsageError(
                f"a run of {name} can't be given a key: debounce, batch and singleton find it by "
                "theirs"
            )

    def priority_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], chosen: Duration | None
    ) -> float:
        """How much earlier than it is a run counts as started, in seconds."""
        if chosen is not None:
            found = seconds(chosen)
        elif self.priority is None:
            return 0.0
        elif isinstance(self.priority, float | int):
            found = float(self.priority)
        else:
            found = seconds(self._value(self.priority, args, kwargs) or 0.0)
        return min(max(found, 0.0), MOST_PRIORITY)

    def shaped(self, new: NewRun, signature: Signature, priority: Duration | None) -> NewRun:
        """A run to be created, with all that flow control says of it."""
        try:
            args, kwargs = signature.decode_arguments(new.input)
            new = replace(new, priority=self.priority_of(args, kwargs, priority))
            one = self.singleton
            if one is not None:
                key = "" if one.key is None else self._text(one.key, args, kwargs)
                policy = "start_new" if one.when_busy == "skip" else "replace"
                new = replace(new, key=f"singleton:{key}", key_policy=policy)
            if self.rate_limit is not None:
                new = replace(new, start_rates=self._start_rates(args, kwargs))
            if self.gathers:
                gather = self._gather(new.input, args, kwargs)
                due_at = new.due_at + gather.wait
                if gather.size == 1:
                    due_at = new.due_at
                new = replace(new, gather=gather, due_at=due_at)
        except (HoldfastError, TypeError, ValueError, LookupError, AttributeError):
            # Arguments that do not fit: it is started all the same, and fails where all can see.
            if not _fits(signature, new.input):
                return replace(new, pace=self.pace)
            raise
        return replace(new, pace=self.pace)

    def _start_rates(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[StartRate, ...]:
        assert self.rate_limit is not None
        limit, found = self.rate_limit, list[StartRate]()
        if (rate := limit.rate(limit.limit)) is not None:
            found.append(StartRate("", rate))
        if limit.key is not None and (rate := limit.rate(limit.per_key)) is not None:
            found.append(StartRate(f"={self._text(limit.key, args, kwargs)}", rate))
        return tuple(found)

    def _gather(self, input: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Gather:
        if self.batch is not None:
            batch, [field, *_] = self.batch, inspect.signature(self.function).parameters
            items = json.loads(input)[field]
            key = "" if batch.key is None else str(value_at(items[0], batch.key))
            return Gather("list", key, seconds(batch.within), size=batch.size, field=field)
        quiet = self.debounce
        assert quiet is not None
        key = "" if quiet.key is None else self._text(quiet.key, args, kwargs)
        at_most = None if quiet.at_most is None else seconds(quiet.at_most)
        return Gather("last", key, seconds(quiet.wait), at_most=at_most)

    # --- keys ---

    def _text(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return str(self._value(key, args, kwargs))

    def _value(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(key):
            return key(*args, **kwargs)
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        name, *fields = key.split(".")
        if name not in bound.arguments:
            name = self.function.__qualname__
            raise UsageError(f"{name} has no parameter {key!r} to limit its runs by")
        value = bound.arguments[name]
        for field in fields:
            value = value_at(value, field) if isinstance(value, dict) else getattr(value, field)
        return value


def _fits(signature: Signature, input: bytes) -> bool:
    try:
        signature.decode_arguments(input)
    except (HoldfastError, TypeError, ValueError):
        return False
    return True


def value_at(payload: Any, field: str) -> Any:
    """What a payload has under a name; dots go deeper. None if it has nothing there."""
    for name in field.split("."):
        if not isinstance(payload, dict):
            return None
        payload = cast("Mapping[str, Any]", payload).get(name)
    return payload
