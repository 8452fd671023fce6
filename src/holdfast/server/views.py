"""Records as the API shows them: runs, steps, events, model calls, totals.

Large payloads are not carried along: they are named, with their size and where to get them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from holdfast.errors import UsageError
from holdfast.records import ErrorInfo, Event, Run
from holdfast.records.flow import QueuePlace
from holdfast.records.live import Published
from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.runtime.step_records import StepRecord, records_of
from holdfast.server.replies import encoded
from holdfast.store.inspection import Activity, ActivityPage, CallRow, Sums

SHOWN_BYTES = 64 * 1024
"""A larger payload is left out of lists and streams."""
PAGE = 200
"""Steps, calls, sandboxes and commands that a run's record carries along, of each."""
PAGE_BYTES = 1024 * 1024
"""A page ends before it is larger, with one item at least."""
NANO = 10**9


def run_json(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
    return {**run.as_json(), "urls": urls(run.id)}


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


def published_json(run_id: str, published: Published, limit: int = SHOWN_BYTES) -> dict[str, Any]:
    """A value that a run has published; one over the limit is left out, with where it is."""
    size = len(published.value)
    url = f"/api/runs/{run_id}/published/{quote(published.name, safe='')}"
    value = json.loads(published.value) if size <= limit else None
    return {"value": value, "at": published.at, "bytes": size, "url": url}


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
        _cut(shown, name, event.run_id, event.seq, len(value))


def _cut(shown: dict[str, Any], name: str, run_id: str, seq: int, size: int) -> None:
    url = f"/api/runs/{run_id}/events/{seq}"
    shown.setdefault("cut", {})[name] = {"bytes": size, "url": url}


def run_detail(
    run: Run,
    journal: Sequence[Event],
    activity: Activity,
    published: Sequence[Published] = (),
    limit: int = SHOWN_BYTES,
    queue: QueuePlace | None = None,
) -> dict[str, Any]:
    """A run with what is known of it: the first page of each kind, and where the rest is."""
    last = journal[-1]
    shown: dict[str, Any] = {
        **run_json(run),
        "input": None,
        "result": None,
        "failure": None,
        "queue": None if queue is None else queue.as_json(),
        "published": {each.name: published_json(run.id, each, limit) for each in published},
        "log": max(event.log for event in journal),
    }
    _put(shown, "input", journal[0], journal[0].value or b"{}", limit)
    if run.status == "completed":
        _put(shown, "result", last, last.value or b"null", limit)
    if run.status in ("failed", "stuck") and "error" in last.facts:
        shown["failure"] = ErrorInfo.from_json(last.facts["error"]).shown()
    steps = records_of(journal)
    pages = {
        "steps": step_page(steps, journal, None, PAGE, limit),
        "calls": call_page(activity.calls),
        "sandboxes": sandbox_page(activity.sandboxes),
        "commands": command_page(activity.commands),
    }
    shown["more"] = {}
    for name, page in pages.items():
        shown[name] = page[name]
        if page["after"] is not None:
            after = quote(page["after"], safe="")
            shown["more"][name] = f"/api/runs/{run.id}/{name}?after={after}"
    shown["totals"] = {"steps": len(steps), **totals(activity.sums)}
    return shown


# --- pages ---


def step_page(
    steps: Sequence[StepRecord],
    journal: Sequence[Event],
    after: str | None,
    count: int,
    limit: int = SHOWN_BYTES,
) -> dict[str, Any]:
    """Steps behind the one with the key `after`, in the order they began."""
    first = 0
    if after is not None:
        keys = [step.key for step in steps]
        if after not in keys:
            raise UsageError(
                f"there is no step {after[:100]!r} to go on from",
                hint="give `after` as the last page gave it",
            )
        first = keys.index(after) + 1
    values = {event.seq: event.value for event in journal}
    run_id = journal[0].run_id
    chosen = steps[first : first + count]
    more = len(steps) > first + count
    return _page("steps", "key", (step_json(step, run_id, values, limit) for step in chosen), more)


def call_page(found: ActivityPage[CallRow]) -> dict[str, Any]:
    """Model calls, without what was said in them."""
    return _page("calls", "id", map(call_json, found.rows), found.more)


def sandbox_page(found: ActivityPage[SandboxRecord]) -> dict[str, Any]:
    """Sandboxes of a run."""
    return _page("sandboxes", "id", (each.as_json() for each in found.rows), found.more)


def command_page(found: ActivityPage[CommandRecord]) -> dict[str, Any]:
    """Commands in sandboxes, with the end of what they wrote."""
    return _page("commands", "id", (each.as_json() for each in found.rows), found.more)


def _page(name: str, key: str, items: Iterable[dict[str, Any]], more: bool) -> dict[str, Any]:
    """What fits into a page, one at least, and where the next one begins."""
    shown: list[dict[str, Any]] = []
    size = 0
    for item in items:
        size += len(encoded(item))
        if shown and size > PAGE_BYTES:
            return {name: shown, "after": shown[-1][key]}
        shown.append(item)
    return {name: shown, "after": shown[-1][key] if more else None}


# --- parts ---


def step_json(
    step: StepRecord, run_id: str, values: Mapping[int, bytes | None], limit: int = SHOWN_BYTES
) -> dict[str, Any]:
    """A step; a payload that is not among `values`, or over the limit, is named in `cut`."""
    shown: dict[str, Any] = {
        "key": step.key,
        "kind": step.kind,
        "name": step.name,
        "label": step.label or None,
        "branch": step.branch or None,
        "status": step.status,
        "attempts": step.attempts,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "input": None,
        "output": None,
        "error": None if step.error is None else step.error.shown(),
    }
    places = (("input", step.input_seq, step.input_size),)
    if step.output_seq is not None:
        places += (("output", step.output_seq, step.output_size),)
    for name, seq, size in places:
        value = values.get(seq)
        if size and (value is None or size > limit):
            _cut(shown, name, run_id, seq, size)
        elif value is not None:
            shown[name] = json.loads(value)
    return shown


def dollars(nano: int | None) -> str | None:
    """An amount of money, exact; None if the price is unknown."""
    return None if nano is None else f"{Decimal(nano) / NANO:f}"


def call_json(call: CallRow) -> dict[str, Any]:
    """A model call, without what was said in it."""
    ended = call.finished_at is not None
    return {
        "id": call.id,
        "run_id": call.run_id,
        "workflow": call.workflow,
        "step": call.step,
        "step_key": call.step_key,
        "attempt": call.attempt,
        "model": call.model,
        "served_by": None if call.provider is None else f"{call.provider}/{call.served}",
        "status": call.status,
        "started_at": call.started_at,
        "finished_at": call.finished_at,
        "seconds": call.latency if ended else None,
        "first_token_seconds": call.first_token,
        "input_tokens": call.input_tokens,
        "cached_tokens": call.cached_tokens,
        "output_tokens": call.output_tokens,
        "reasoning_tokens": call.reasoning_tokens,
        "cost_usd": dollars(call.cost),
        "finish": call.finish,
        "error": call.error,
        "message": call.message,
        "estimated": call.estimated,
        "tags": call.tags,
        "provider_attempts": call.attempts,
    }


def totals(sums: Sums) -> dict[str, Any]:
    """What a run did in sum. A call of unknown price makes the cost a lower bound."""
    return {
        "calls": sums.calls.calls,
        "sandboxes": sums.sandboxes,
        "commands": sums.commands,
        "input_tokens": sums.calls.input_tokens,
        "output_tokens": sums.calls.output_tokens,
        "cost_usd": dollars(sums.calls.cost),
        "cost_is_complete": sums.calls.is_complete,
        "children": {
            "runs": sums.children,
            "calls": sums.below.calls,
            "input_tokens": sums.below.input_tokens,
            "output_tokens": sums.below.output_tokens,
            "cost_usd": dollars(sums.below.cost),
            "cost_is_complete": sums.below.is_complete,
        },
    }
