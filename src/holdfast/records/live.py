"""What can be asked of a run while it goes on: what it has published, and updates of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.records import ErrorInfo

UpdateStatus = Literal["pending", "answered", "rejected", "unanswered"]

UPDATE: Final = "@update/"
"""Prefix of the event that brings an update to its run, and of that event's id."""
ANSWER: Final = "@answer/"
"""Prefix of the event that brings the answer to a run that waits for it."""


@dataclass(frozen=True, slots=True)
class Published:
    """The last value that a run has published under a name."""

    name: str
    value: bytes
    """As JSON."""
    at: float

    def as_json(self) -> dict[str, Any]:
        return {"value": json.loads(self.value), "at": self.at}


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """An update: an event that its run answers."""

    chain: str
    """The run it was sent to; or the first of the runs that have gone on from one another."""
    id: str
    run_id: str
    """The run that has to answer it."""
    name: str
    status: UpdateStatus
    sent_at: float
    ended_at: float | None = None
    value: bytes | None = None
    """The answer, as JSON."""
    error: ErrorInfo | None = None
    """Why it was rejected, or was not answered."""

    @property
    def ended(self) -> bool:
        return self.status != "pending"

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "run_id": self.run_id,
            "name": self.name,
            "status": self.status,
            "sent_at": self.sent_at,
            "ended_at": self.ended_at,
            "value": None if self.value is None else json.loads(self.value),
            "error": None if self.error is None else str(self.error),
        }


def event_id_of(chain: str, id: str) -> str:
    """The id of the event that brings an update to its run."""
    return f"{UPDATE}{chain}/{id}"


def update_of(event_id: str) -> tuple[str, str]:
    """The chain and the id of the update that an event brings."""
    chain, _, id = event_id.removeprefix(UPDATE).partition("/")
    return chain, id
