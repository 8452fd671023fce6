"""Flow control as it is kept with a run: its pace, what it gathers, and why it waits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple


class Rate(NamedTuple):
    """So many in any stretch of so many seconds."""

    limit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How many runs may begin: of the workflow, and of a lane in it."""

    all: Rate | None = None
    lane: Rate | None = None

    def as_text(self) -> str:
        return json.dumps({"all": self.all, "lane": self.lane})

    @classmethod
    def of_text(cls, text: str) -> Pace:
        found = json.loads(text)
        return cls(*(Rate(*found[name]) if found[name] else None for name in ("all", "lane")))

    @property
    def seconds(self) -> float:
        """How long a beginning counts."""
        return max(rate.seconds for rate in (self.all, self.lane) if rate is not None)


class StartRate(NamedTuple):
    """How many starts with this key are taken; one too many is refused."""

    key: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Gather:
    """Starts that go into one run, as long as it has not begun.

    `last`: the newest input counts, and the run begins once it has been quiet for `wait` seconds,
    `at_most` so long after the first. `list`: the lists under `field` are joined, and the run
    begins `wait` seconds after the first, or with `size` items.
    """

    kind: Literal["last", "list"]
    key: str
    wait: float
    at_most: float | None = None
    size: int | None = None
    field: str = ""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Why a run has not begun."""

    why: Literal["places", "rate", "gathering"]
    """No place is free; so many have begun just now; more is gathered for it."""
    ahead: int
    """How many of its key (of its workflow, where it has none) are before it."""
    lane: str | None = None
    next_at: float | None = None
    """When the next of its key may begin; None: when another ends."""
    gathered: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self, now: float) -> str:
        """In words.

        >>> place.text(now)
        'queued behind 12 of key acme, next slot in 4 s'
        """
        left = None if self.next_at is None else max(self.next_at - now, 0.0)
        if self.why == "gathering":
            return f"gathering, {self.gathered} so far, begins in {left or 0.0:.0f} s"
        whose = "" if self.lane is None else f" of key {self.lane}"
        place = f"queued behind {self.ahead}{whose}" if self.ahead else f"next{whose}"
        when = "when another ends" if left is None else f"in {left:.0f} s"
        return f"{place}, next slot {when}"
