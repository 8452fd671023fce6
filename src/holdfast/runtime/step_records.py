"""A run's steps, put together from its journal: what lists and pages show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from holdfast.records import (
    CHILD_DROPPED,
    CHILD_ENDED,
    CHILD_STARTED,
    RUN_COMPLETED,
    RUN_RETRIED,
    STEP_CANCELLED,
    STEP_FAILED,
    STEP_RETRYING,
    STEP_STARTED,
    TIMER_SET,
    WAIT_CREATED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    ErrorInfo,
    Event,
    Step,
)

Kind = Literal["step", "timer", "wait", "child", "webhook"]

_KINDS: dict[str, Kind] = {
    STEP_STARTED: "step",
    TIMER_SET: "timer",
    WAIT_CREATED: "wait",
    CHILD_STARTED: "child",
    WEBHOOK_CREATED: "webhook",
}


def steps_of(journal: Sequence[Event]) -> list[Step]:
    """Everything the run did that takes time, in the order it began."""
    steps: dict[str, Step] = {}
    closed: dict[int, str] = {}
    for event in journal:
        kind = _KINDS.get(event.type)
        if kind is not None:
            name = event.facts.get("name", kind)
            steps[event.key] = Step(
                event.key, kind, name, "running", event.at, event.seq, input=event.value
            )
        elif event.type == RUN_RETRIED:
            for key in [closed[seq] for seq in event.facts["void"] if seq in closed]:
                steps[key] = _taken_up_again(steps[key])
        elif event.key in steps:
            steps[event.key] = _after(steps[event.key], event)
            if steps[event.key].ended_at is not None:
                closed[event.seq] = event.key
        if kind == "webhook":
            steps[event.key] = replace(steps[event.key], status="completed", ended_at=event.at)
    return list(steps.values())


def _taken_up_again(step: Step) -> Step:
    """A step whose failure a retry of the run has voided."""
    return replace(step, status="running", attempts=step.attempts + 1, error=None, ended_at=None)


def _after(step: Step, event: Event) -> Step:
    """A step, with what one more event says of it."""
    facts = event.facts
    if event.type == STEP_RETRYING:
        error = ErrorInfo.from_json(facts["error"])
        return replace(step, status="retrying", attempts=facts["attempt"] + 1, error=error)
    if event.type == STEP_FAILED:
        error = ErrorInfo.from_json(facts["error"])
        return replace(
            step, status="failed", attempts=facts["attempts"], error=error, ended_at=event.at
        )
    if event.type in (STEP_CANCELLED, CHILD_DROPPED):
        return replace(step, status="cancelled", ended_at=event.at)
    if event.type == WAIT_TIMED_OUT:
        return replace(step, status="timed out", ended_at=event.at)
    if event.type == CHILD_ENDED and facts["type"] != RUN_COMPLETED:
        return replace(step, status="failed", ended_at=event.at)
    if event.type.endswith((".completed", ".fired", ".received", ".ended")):
        return replace(step, status="completed", output=event.value, error=None, ended_at=event.at)
    return step
