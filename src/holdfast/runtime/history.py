"""A journal, sorted for replay: what was asked, what came of it, and in which order.

After a retry, what was recorded since the failure is not replayed in order, for the body now
takes another way. What the task that was struck and those above it did because of the failure is
forgotten. The rest is kept, and handed out again to a command with the same place, name and
arguments: what was paid for is not done twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import NonDeterminismError
from holdfast.records import (
    CANCEL_REQUESTED,
    COMMANDS,
    COMPLETIONS,
    PATCH_MARKED,
    RUN_FORKED,
    RUN_RETRIED,
    STEP_EDITED,
    STEP_FAILED,
    STEP_RETRYING,
    WEBHOOK_CREATED,
    Event,
)
from holdfast.runtime.commands import Command, describe


@dataclass(frozen=True, slots=True)
class Retrying:
    """A step between two attempts: how many there were, and when the next is due."""

    attempts: int
    next_at: float


class History:
    """What replay needs to know of a journal."""

    def __init__(self, journal: Sequence[Event]) -> None:
        self.deliveries: deque[Event] = deque()
        """What to hand to the body, in order."""
        self.patches: set[str] = set()
        self.retrying: dict[str, Retrying] = {}
        self.tried: dict[str, int] = {}
        """Attempts of a step before the run was last retried: they count on from there, since
        what is kept by attempt (model calls, pieces of a stream) belongs to one that failed."""
        self.edits: dict[str, bytes] = {}
        """Arguments that a fork has replaced, by the step's key."""
        self.consumed: set[int] = set()
        """Messages that this run has taken."""
        self.marks: list[Event] = []
        """Where the run was retried or forked before it had asked for anything."""
        self.held: set[int] = set()
        """Deliveries that the body had not seen when it was cancelled: it is handed them and the
        cancellation in one, so that it is cancelled where it stood, and not a step further on."""
        self._revived: set[str] = set()
        """Keys whose failure a retry has voided."""
        self._asked: dict[str, Event] = {}
        self._kept: dict[str, tuple[Event, Event | None]] = {}
        retries = [place for place, event in enumerate(journal) if event.type == RUN_RETRIED]
        void: set[int] = set()
        for place in retries:
            void.update(journal[place].facts["void"])
        for event in journal:
            if event.seq in void:
                self._revive(event)
        started = 0
        for place in retries:
            self._sort_until_retry(journal[started:place], journal[place], void)
            started = place
        self._sort([event for event in journal[started:] if event.seq not in void])

    def _sort(self, events: Sequence[Event]) -> None:
        for event in events:
            self._note(event)
            if event.type in COMMANDS and event.type != PATCH_MARKED:
                self._asked[event.key] = event
                self._kept.pop(event.key, None)
            if is_mark(event) and not self.deliveries and not self._asked:
                self.marks.append(event)
            elif is_delivery(event) or is_mark(event):
                self.deliveries.append(event)

    def _sort_until_retry(self, events: Sequence[Event], retry: Event, void: set[int]) -> None:
        facts = retry.facts
        failed_at = min(facts["void"], default=int(facts["failed_seq"]))
        valid = [event for event in events if event.seq not in void]
        self._sort([event for event in valid if event.seq < failed_at])
        voided = [e for e in events if e.seq in facts["void"]]
        struck = {task_of(e.key) for e in voided}
        # A cancellation, by the run's deadline: all that was begun since was the cleaning up.
        cancelled = any(e.type == CANCEL_REQUESTED for e in voided)
        dropped: set[str] = set()
        for event in valid:
            if event.seq > failed_at and event.key not in dropped:
                because = cancelled or _concerned(task_of(event.key), struck)
                if event.type in COMMANDS and because:
                    dropped.add(event.key)  # it was done because of the failure
                else:
                    self._keep(event)
        for key in self._revived:
            self.retrying.pop(key, None)

    def _keep(self, event: Event) -> None:
        self._note(event)
        if event.type in COMMANDS and event.type != PATCH_MARKED:
            self._kept[event.key] = (event, event if completes_itself(event) else None)
        elif event.type == STEP_FAILED:
            self._revive(event)  # what failed after the failure is tried again, too
        elif event.type in COMPLETIONS and event.key in self._kept:
            self._kept[event.key] = (self._kept[event.key][0], event)
        elif event.type in COMPLETIONS:
            self.deliveries.append(event)

    def _revive(self, event: Event) -> None:
        self._revived.add(event.key)
        if event.type == STEP_FAILED:
            self.tried[event.key] = event.facts["attempts"]

    def _note(self, event: Event) -> None:
        if event.type == PATCH_MARKED:
            self.patches.add(event.facts["name"])
        elif event.type == STEP_RETRYING:
            facts = event.facts
            self.retrying[event.key] = Retrying(facts["attempt"], facts["next_at"])
        elif event.type == CANCEL_REQUESTED:
            self.held.update(event.facts.get("held", ()))
        elif event.type == STEP_EDITED:
            self.edits[event.key] = event.value or b"{}"
        elif event.type in COMPLETIONS and '"message"' in event.meta:
            message = event.facts.get("message")
            if message is not None:
                self.consumed.add(message)

    @property
    def pending(self) -> bool:
        """Whether the body has not yet reached the end of what was recorded."""
        return bool(self.deliveries or self._asked)

    def asked_before(self, key: str) -> Event | None:
        """The recorded command of that key; each is asked for once."""
        return self._asked.pop(key, None)

    def kept(self, key: str, command: Command) -> tuple[Event, Event | None] | None:
        """What a retry has kept for this very command."""
        found = self._kept.pop(key, None)
        return found if found is not None and command.same_as(found[0]) else None

    @property
    def unasked(self) -> list[Event]:
        """The recorded commands that the body has not asked for (yet)."""
        return list(self._asked.values())

    def check_all_asked_for(self) -> None:
        """At the end of the journal: the body must have asked for all that is in it."""
        for event in self._asked.values():
            was = describe(event.type, event.facts.get("name", "?"), event.value)
            raise NonDeterminismError(
                f"at {event.key} the journal has {was}, but the code no longer calls it",
                hint="finish old runs first, or guard the new path with patched('…')",
            )


def completes_itself(event: Event) -> bool:
    """Whether recording the command is all there is to it."""
    return event.type == WEBHOOK_CREATED


def is_delivery(event: Event) -> bool:
    """Whether the body has to be told of the event."""
    return event.type in COMPLETIONS or event.type == CANCEL_REQUESTED or completes_itself(event)


def is_mark(event: Event) -> bool:
    """Whether the run is told something about itself at this place, and its body nothing."""
    return event.type in (RUN_RETRIED, RUN_FORKED)


def task_of(key: str) -> str:
    """The path of the task that a command belongs to."""
    return key.rpartition("/")[0]


def _concerned(path: str, struck: set[str]) -> bool:
    """Whether a task, or one it has made, was struck by the failure."""
    return any(other == path or other.startswith(f"{path}.") for other in struck)
