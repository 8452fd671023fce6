"""What a workflow listens to: the events that start and cancel its runs, as stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Action = Literal["start", "cancel"]


@dataclass(frozen=True)
class Reaction:
    """What an event of some name does."""

    action: Action
    match: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the payload and their values, as of a wait."""
    key: str | None = None
    """The field of the payload whose value is the run's key."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Subscription:
    """What a workflow listens to."""

    workflow: str
    reactions: Mapping[str, Reaction]
    """By the event's name."""

    def as_json(self) -> dict[str, Any]:
        events = {name: each.as_json() for name, each in self.reactions.items()}
        return {"workflow": self.workflow, "events": events}
