"""Forks: which part of a journal a new run begins with, and what is replaced in it.

The events taken over keep their places, for a retry among them refers to places.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import NotFound, UsageError
from holdfast.ids import new_id
from holdfast.records import (
    COMPLETIONS,
    RUN_FORKED,
    STEP_COMPLETED,
    STEP_EDITED,
    STEP_STARTED,
    Event,
    Run,
)
from holdfast.runtime.codec import codec_for
from holdfast.store.base import NewRun

UNCHANGED: Final[Any] = object()
"""What stands for a result that is not replaced. (None may be one.)"""


def new_run(source: Run, now: float) -> NewRun:
    """The row of a run that is forked from another."""
    return NewRun(
        id=new_id("run", at=now),
        workflow=source.workflow,
        version=source.version,
        input=b"",
        meta={},
        created_at=now,
        due_at=now,
        attributes=source.attributes,
        timeout=source.timeout,
    )


def history_before(
    journal: Sequence[Event], key: str | None, input: Mapping[str, Any] | None, result: Any
) -> list[Event]:
    """What a fork takes over: all that was recorded before the step, and what replaces it."""
    if key is None:
        if result is not UNCHANGED:
            raise UsageError("a result to fork with needs the step it is the result of")
        return [_edited(journal[0], input)]
    if input is not None and result is not UNCHANGED:
        raise UsageError("replace a step's input or its result, not both")
    starts = [event for event in journal if event.key == key and event.type == STEP_STARTED]
    if not starts:
        raise NotFound(
            f"there is no step {key!r} in {journal[0].run_id}",
            hint="holdfast runs show lists the steps and their keys",
        )
    begin = starts[-1]
    history = list(journal[: begin.seq - 1])
    if result is not UNCHANGED:
        value = codec_for(Any).encode(result, "$.result")
        completed = begin._replace(seq=begin.seq + 1, type=STEP_COMPLETED, meta="{}", value=value)
        history += [begin, completed]
    elif input is not None:
        history.append(_edited(begin, input)._replace(type=STEP_EDITED, meta="{}"))
    return history


def taken_over(new: NewRun, source: str, history: Sequence[Event]) -> list[Event]:
    """The journal a fork begins with: what it takes over, and the mark where it begins itself."""
    events = [event._replace(run_id=new.id) for event in history]
    # What the body does once it has a completion is recorded behind it: if one is the last, then
    # what follows from it is not taken over, and is the fork's own doing.
    later = [events.pop()] if events[-1].type in COMPLETIONS else []
    place = events[-1].seq + 1
    facts: dict[str, Any] = {"id": new.id, "from": source, "attributes": new.attributes}
    if new.deadline is not None:
        facts["deadline"] = new.deadline
    mark = Event(new.id, place, RUN_FORKED, "", new.created_at, json.dumps(facts))
    return [*events, mark, *(event._replace(seq=place + 1) for event in later)]


def _edited(event: Event, changes: Mapping[str, Any] | None) -> Event:
    """An event with some of the fields of its payload replaced."""
    if not changes:
        return event
    fields = json.loads(event.value or b"{}")
    for name in changes:
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise UsageError(f"there is no argument {name!r} to replace (there are: {known})")
    try:
        return event._replace(value=json.dumps({**fields, **changes}).encode())
    except TypeError as error:
        raise UsageError(f"the new input is no JSON: {error}") from error
