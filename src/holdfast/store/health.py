"""What can be said about a store without opening it for work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.errors import StoreError


@dataclass(frozen=True)
class Health:
    """A store's file, as found."""

    path: str
    exists: bool
    writable: bool
    schema_version: int | None = None
    known_schema: int = 0
    """The newest schema that this program knows."""
    bytes: int = 0
    """The size of the file and its write-ahead log."""
    runs: dict[str, int] = field(default_factory=dict[str, int])
    """How many runs there are, by status."""
    workers: list[str] = field(default_factory=list[str])
    """The workers on this machine that are alive."""
    problem: StoreError | None = None
    concerns: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What will do harm one day though it works now, each with what to do about it."""

    def as_json(self) -> dict[str, Any]:
        problem = self.problem
        return {**asdict(self), "problem": problem.message if problem else None}
