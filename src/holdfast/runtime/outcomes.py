"""What a completion means to the body: the value its `await` gives, or the error it raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import RunCancelled, RunFailed
from holdfast.records import (
    CHILD_ENDED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    STEP_COMPLETED,
    STEP_FAILED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    ErrorInfo,
    Event,
)
from holdfast.runtime.codec import Codec
from holdfast.runtime.commands import Child, Command, StepCall
from holdfast.runtime.failures import rebuild


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event that a run has waited for."""

    id: str
    name: str
    payload: Any


@dataclass(frozen=True, slots=True)
class TimedOut:
    """What a wait gives when its time is over. False in a condition."""

    name: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class EndedRun:
    """How a run that was waited for has ended."""

    run_id: str
    type: str
    facts: Mapping[str, Any]
    value: bytes | None


def value_of(command: Command, event: Event) -> Any:
    """What the body gets for its command; raises what the body should see raised."""
    if event.type == STEP_COMPLETED:
        assert isinstance(command, StepCall)
        return command.step.signature.decode_result(event.value or b"null")
    if event.type == STEP_FAILED:
        raise rebuild(ErrorInfo.from_json(event.facts["error"]))
    if event.type == WAIT_RECEIVED:
        facts = event.facts
        return ReceivedEvent(facts["event_id"], command.name, json.loads(event.value or b"null"))
    if event.type == WAIT_TIMED_OUT:
        return TimedOut(command.name)
    if event.type == CHILD_ENDED:
        facts = event.facts
        ended = EndedRun(facts["run_id"], facts["type"], facts["facts"], event.value)
        if isinstance(command, Child) and command.result is not None:
            return outcome_of_run(ended, command.result)
        return ended
    if event.type == WEBHOOK_CREATED:
        return event.facts["token"]
    return None  # a timer


def outcome_of_run(ended: EndedRun, result: Codec) -> Any:
    """The result of a run, or its failure raised."""
    if ended.type == RUN_COMPLETED:
        return result.decode(ended.value or b"null", "$.result")
    if ended.type == RUN_CANCELLED:
        how = "terminated" if "terminated" in ended.facts else "cancelled"
        raise RunCancelled(f"{ended.run_id} was {how}")
    info = ErrorInfo.from_json(ended.facts["error"])
    raise RunFailed(f"{ended.run_id} failed: {info}") from rebuild(info)
