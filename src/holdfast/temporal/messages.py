"""What the bridge, the workflow and its activities tell one another: in Temporal's histories.

They are read again by later versions of this code, so fields are only added, with defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from holdfast.errors import CorruptEvent
from holdfast.records import Event, Message, Run
from holdfast.runtime.run_context import RunContext
from holdfast.store.base import Mail

Row = list[Any]
"""An event without its run: seq, type, key, at, meta, value."""


def as_rows(events: Iterable[Event]) -> list[Row]:
    """Events as they are told."""
    return [
        [e.seq, e.type, e.key, e.at, e.meta, None if e.value is None else e.value.decode()]
        for e in events
    ]


def from_rows(run_id: str, rows: Iterable[Row]) -> list[Event]:
    """Events as they were told."""
    return [
        Event(run_id, seq, type, key, at, meta, None if value is None else value.encode())
        for seq, type, key, at, meta, value in rows
    ]


@dataclass
class Letter:
    """A piece of mail of the store's, passed on to the run."""

    id: int
    kind: str
    key: str = ""
    message: int | None = None
    event_id: str = ""
    name: str = ""
    payload: str = "null"
    at: float = 0.0
    ended_run: str = ""
    ended: list[Row] = field(default_factory=list[Row])
    damaged: str | None = None

    @classmethod
    def of(cls, mail: Mail) -> Letter:
        letter = cls(mail.id, mail.kind, mail.key)
        if mail.message is not None:
            message = mail.message
            letter.message, letter.event_id, letter.name = (
                message.id,
                message.event_id,
                message.name,
            )
            letter.payload, letter.at = message.payload.decode(), message.at
        if mail.ended is not None:
            letter.ended_run, letter.ended = mail.ended.run_id, as_rows([mail.ended])
        letter.damaged = None if mail.damaged is None else mail.damaged.message
        return letter

    def mail(self, run_id: str) -> Mail:
        message = None
        if self.message is not None:
            payload = self.payload.encode()
            message = Message(self.message, self.event_id, self.name, run_id, payload, self.at)
        ended = from_rows(self.ended_run, self.ended)
        return Mail(
            self.id,
            run_id,
            self.kind,  # pyright: ignore[reportArgumentType] - as it came from the store
            self.key,
            message,
            ended[0] if ended else None,
            None if self.damaged is None else CorruptEvent(self.damaged),
        )


@dataclass
class Begin:
    """A run to go on with: who has it, and its journal so far."""

    id: str
    workflow: str
    version: str
    fence: int
    created_at: float
    started_at: float
    timeout: float | None
    deadline: float | None
    secret: str
    """What the tokens of its webhooks are made of."""
    journal: list[Row]
    letters: list[Letter] = field(default_factory=list[Letter])
    """Mail that it has not looked at yet."""
    history_events: int = 8000
    history_megabytes: float = 8.0
    """When to go on with a new history. Told to the run, for every replay must decide the same."""
    indexed: bool = False
    """Whether the server knows our search attributes."""

    def run(self) -> Run:
        return Run(
            self.id,
            self.workflow,
            self.version,
            "running",
            self.created_at,
            started_at=self.started_at,
            timeout=self.timeout,
            deadline=self.deadline,
        )


@dataclass
class Publication:
    """What a step lets others see while it goes on."""

    key: str
    name: str
    value: str


@dataclass
class Recorded:
    """How far a run's journal is to be copied to the store."""

    run_id: str
    fence: int
    seq: int


@dataclass
class StepInput:
    """An attempt of a step."""

    run_id: str
    workflow: str
    fence: int
    seq: int
    """How far the run's journal has come: up to there, Temporal has it."""
    key: str
    step: str
    meta: str
    module: str
    qualname: str
    input: str
    attempts: int
    """Those that there were before."""
    tried: int
    """Of these, the ones that a retry of the run has forgiven."""
    context: dict[str, Any]
    retries: int = 0


def context_facts(context: RunContext) -> dict[str, Any]:
    """What a run knows about itself, to be told to its steps."""
    return {
        "id": context.id,
        "workflow": context.workflow,
        "attempt": context.attempt,
        "created_at": context.created_at.timestamp(),
        "started_at": context.started_at.timestamp(),
        "key": context.key,
        "parent_id": context.parent_id,
        "attributes": dict(context.attributes),
        "continued_from": context.continued_from,
        "deadline": None if context.deadline is None else context.deadline.timestamp(),
        "scheduled_at": None if context.scheduled_at is None else context.scheduled_at.timestamp(),
    }


_MOMENTS = ("created_at", "started_at", "deadline", "scheduled_at")


def context_from(facts: dict[str, Any]) -> RunContext:
    """What a step was told of its run."""
    known = dict(facts)
    for name in _MOMENTS:
        if known[name] is not None:
            known[name] = datetime.fromtimestamp(known[name], UTC)
    known["attributes"] = MappingProxyType(known["attributes"])
    return RunContext(**known)
