"""What a run knows about itself: its id, workflow, key, parent, attributes, attempt and times.

It comes from the journal alone, so that a body that is replayed sees what it saw. What changes
while a run goes on changes at a place of the journal: the attempt where a retry lets the run go
on, the id where a fork leaves the run it was forked from. What was recorded before that place is
replayed with what was true then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from holdfast.records import RUN_FORKED, Event


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run that is executing, as it stands at this place of its journal."""

    id: str
    workflow: str
    attempt: int
    """1, and one more for each time the run was retried after it had failed. A worker that died
    and was replaced does not count: nobody can tell from within."""
    created_at: datetime
    started_at: datetime
    key: str | None = None
    parent_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    continued_from: str | None = None
    """The run that has gone on as this one."""
    deadline: datetime | None = None
    """When the run is ended if it has not ended by then; None: never."""
    scheduled_at: datetime | None = None
    """The moment that a schedule has started it for; it may have begun later."""

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.workflow}, attempt {self.attempt}>"


def of_journal(
    created_at: float, facts: Mapping[str, Any], workflow: str, started_at: float
) -> RunContext:
    """The context that a run begins with, by the first event of its journal."""
    return RunContext(
        # The seed is the id the run was created with: in a fork, that of the run it began as.
        id=facts["seed"],
        workflow=workflow,
        attempt=1,
        created_at=_moment(created_at),
        started_at=_moment(started_at),
        key=facts.get("key"),
        parent_id=facts.get("parent"),
        attributes=MappingProxyType(facts.get("attributes") or {}),
        continued_from=facts.get("continued_from"),
        deadline=_deadline(facts),
        scheduled_at=_optional(facts, "scheduled_at"),
    )


def after(context: RunContext, mark: Event) -> RunContext:
    """The context from a place on where the run was retried, or forked."""
    if mark.type == RUN_FORKED:
        facts = mark.facts
        return replace(
            context,
            id=facts["id"],
            key=None,
            parent_id=None,
            continued_from=None,
            attributes=MappingProxyType(facts["attributes"]),
            deadline=_deadline(facts),
        )
    # A retry gives the run its time anew.
    deadline = _deadline(mark.facts) or context.deadline
    return replace(context, attempt=context.attempt + 1, deadline=deadline)


def with_attributes(context: RunContext, changes: Mapping[str, Any]) -> RunContext:
    """The context once the body has set attributes; None has removed one."""
    merged = {**context.attributes, **changes}
    kept = {name: value for name, value in merged.items() if value is not None}
    return replace(context, attributes=MappingProxyType(kept))


def _deadline(facts: Mapping[str, Any]) -> datetime | None:
    return _optional(facts, "deadline")


def _optional(facts: Mapping[str, Any], name: str) -> datetime | None:
    moment = facts.get(name)
    return None if moment is None else _moment(moment)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
