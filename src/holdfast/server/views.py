"""Records as the API shows them: runs, steps, events, model calls, totals.

Large payloads are not carried along: they are named, with their size and where to get them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from holdfast.records import ErrorInfo, Event, Run, Step
from holdfast.records.calls import Call
from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.runtime.steps_view import steps_of

SHOWN_BYTES = 64 * 1024
"""A larger payload is left out of lists and streams."""
NANO = 10**9


def run_json(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
    return {**run.as_json(), "owner": run.owner, "urls": urls(run.id)}


def urls(run_id: str) -> dict[str, str]:
    """Where a run, its events and its streams are."""
    place = f"/api/runs/{run_id}"
    return {
        "self": place,
        "events": f"{place}/events",
        "stream": f"{place}/stream",
        "cancel": f"{place}/cancel",
        "page": f"/runs/{run_id}",
    }


def event_json(event: Event, limit: int = SHOWN_BYTES) -> dict[str, Any]:
    """An event of a run's journal; a payload over the limit is left out and named in `cut`."""
    shown: dict[str, Any] = {
        "log": event.log,
        "run_id": event.run_id,
        "seq": event.seq,
        "type": event.type,
        "key": event.key,
        "at": event.at,
        "facts": event.facts,
        "value": None,
    }
    if event.value is not None:
        _put(shown, "value", event, event.value, limit)
    return shown


def _put(shown: dict[str, Any], name: str, event: Event, value: bytes, limit: int) -> None:
    if len(value) <= limit:
        shown[name] = json.loads(value)
    else:
        url = f"/api/runs/{event.run_id}/events/{event.seq}"
        shown.setdefault("cut", {})[name] = {"bytes": len(value), "url": url}


@dataclass(frozen=True)
class Doings:
    """What a run's steps did elsewhere: with models and in sandboxes."""

    calls: Sequence[Call] = ()
    sandboxes: Sequence[SandboxRecord] = ()
    commands: Sequence[CommandRecord] = ()


def run_detail(
    run: Run, journal: Sequence[Event], doings: Doings, limit: int = SHOWN_BYTES
) -> dict[str, Any]:
    """A run with everything that is known of it."""
    last = journal[-1]
    shown: dict[str, Any] = {
        **run_json(run),
        "input": None,
        "result": None,
        "failure": None,
        "log": max(event.log for event in journal),
    }
    _put(shown, "input", journal[0], journal[0].value or b"{}", limit)
    if run.status == "completed":
        _put(shown, "result", last, last.value or b"null", limit)
    if run.status in ("failed", "stuck") and "error" in last.facts:
        shown["failure"] = failure_json(ErrorInfo.from_json(last.facts["error"]))
    steps = steps_of(journal)
    values = {id(event.value): event for event in journal if event.value is not None}
    shown["steps"] = [_step_json(step, values, limit) for step in steps]
    shown["calls"] = [call_json(call) for call in doings.calls]
    shown["sandboxes"] = [sandbox_json(sandbox) for sandbox in doings.sandboxes]
    shown["commands"] = [command_json(command) for command in doings.commands]
    counts = {"steps": len(steps), "commands": len(doings.commands)}
    shown["totals"] = {**totals(doings.calls), **counts}
    return shown


def _step_json(step: Step, values: dict[int, Event], limit: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "key": step.key,
        "kind": step.kind,
        "name": step.name,
        "status": step.status,
        "attempts": step.attempts,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "input": None,
        "output": None,
        "error": None if step.error is None else failure_json(step.error),
    }
    for name, value in (("input", step.input), ("output", step.output)):
        if value is not None:
            _put(shown, name, values[id(value)], value, limit)
    return shown


def failure_json(error: ErrorInfo) -> dict[str, Any]:
    """An error of a step or run."""
    state: dict[str, Any] = (error.rebuild or {}).get("state") or {}
    return {
        "type": error.type,
        "message": error.message,
        "traceback": error.traceback,
        "hint": state.get("hint"),
    }


def dollars(nano: int | None) -> str | None:
    """An amount of money, exact; None if the price is unknown."""
    return None if nano is None else f"{Decimal(nano) / NANO:f}"


def call_json(call: Call) -> dict[str, Any]:
    """A model call, without what was said in it."""
    start, end = call.start, call.end
    return {
        "id": start.id,
        "run_id": start.run_id,
        "step": start.step,
        "step_key": start.step_key,
        "attempt": start.attempt,
        "model": start.model,
        "served_by": None
        if end is None or end.provider is None
        else f"{end.provider}/{end.served}",
        "status": call.status,
        "started_at": start.started_at,
        "finished_at": None if end is None else end.finished_at,
        "seconds": None if end is None else end.latency,
        "first_token_seconds": None if end is None else end.first_token,
        "input_tokens": 0 if end is None else end.input_tokens,
        "cached_tokens": 0 if end is None else end.cached_tokens,
        "output_tokens": 0 if end is None else end.output_tokens,
        "reasoning_tokens": 0 if end is None else end.reasoning_tokens,
        "cost_usd": None if end is None else dollars(end.cost),
        "finish": None if end is None else end.finish,
        "error": None if end is None else end.error,
        "message": None if end is None else end.message,
    }


def sandbox_json(sandbox: SandboxRecord) -> dict[str, Any]:
    """A sandbox that a run made."""
    return {
        "id": sandbox.id,
        "backend": sandbox.backend,
        "isolation": sandbox.isolation,
        "runtime": sandbox.runtime,
        "network": list(sandbox.network),
        "step": sandbox.step,
        "step_key": sandbox.step_key,
        "attempt": sandbox.attempt,
        "created_at": sandbox.created_at.timestamp(),
        "stopped_at": _seconds(sandbox.stopped_at),
        "stopped_because": sandbox.stopped_because,
        "cpu_seconds": sandbox.cpu_seconds,
        "peak_memory": sandbox.peak_memory,
        "disk_used": sandbox.disk_used,
    }


def command_json(command: CommandRecord) -> dict[str, Any]:
    """A command in a sandbox, with the end of what it wrote."""
    return {
        "id": command.id,
        "sandbox_id": command.sandbox_id,
        "argv": list(command.argv),
        "cwd": command.cwd,
        "step": command.step,
        "step_key": command.step_key,
        "attempt": command.attempt,
        "started_at": command.started_at.timestamp(),
        "ended_at": _seconds(command.ended_at),
        "ended": command.ended,
        "exit_code": command.exit_code,
        "signal": command.signal,
        "seconds": command.seconds,
        "cpu_seconds": command.cpu_seconds,
        "peak_memory": command.peak_memory,
        "limits_hit": list(command.limits_hit),
        "stdout": command.stdout_tail,
        "stderr": command.stderr_tail,
        "stdout_cut": command.stdout_cut,
        "stderr_cut": command.stderr_cut,
    }


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def totals(calls: Sequence[Call]) -> dict[str, Any]:
    """What a run's model calls came to. A call of unknown price makes the cost a lower bound."""
    ends = [call.end for call in calls if call.end is not None]
    return {
        "calls": len(calls),
        "input_tokens": sum(end.input_tokens for end in ends),
        "output_tokens": sum(end.output_tokens for end in ends),
        "cost_usd": dollars(sum(end.cost or 0 for end in ends)),
        "cost_is_complete": all(end.cost is not None for end in ends) and len(ends) == len(calls),
    }
