"""The pages of one run: its timeline with the selected step beside it, its events, its JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response

from holdfast.agents import run_words
from holdfast.agents.run_words import about
from holdfast.errors import NotFound
from holdfast.ready.frozen_runs import freeze, frozen_calls
from holdfast.records.live import Published
from holdfast.runtime.step_records import StepRecord
from holdfast.server import views
from holdfast.server.inspector import approvals, payloads, timeline
from holdfast.server.inspector.code_html import RepairView, highlight, patch_bytes, repair_of
from holdfast.server.inspector.pages import Page, inspection, mask, url, whole
from holdfast.server.inspector.payloads import SHOWN_BYTES, Mask, Shown
from holdfast.server.inspector.run_data import (
    Loaded,
    children_of,
    existing,
    is_inner,
    is_repo,
    load,
)
from holdfast.server.inspector.runs import status_of
from holdfast.server.inspector.story import STEPS, Entry, is_conversation, read_story
from holdfast.server.inspector.text_format import moment
from holdfast.session import current_store
from holdfast.store.inspection import CallRow, StepWork, View

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

LABEL_BYTES = 4096
"""Of a step's input that is looked at for words that tell it apart."""
LABEL_WIDTH = 60
RESULT_BYTES = 4 * 1024 * 1024
"""A result up to this size is looked at for a patch."""
CHILDREN_EVERY = 2
"""Seconds between looks at child runs that are under way."""
SHOWN = 200
"""Steps and calls that a run's JSON has; the API has pages of the others."""


@dataclass
class Panel:
    """The selected step, with what went in and out."""

    step: StepRecord
    input: Shown | None
    output: Shown | None
    calls: list[CallRow]
    work: StepWork
    hint: str | None


async def timeline_page(request: Request) -> Page:
    """The page at /runs/ID: the timeline, and the step that was chosen."""
    now = time.time()
    key = request.query_params.get("step") or None
    masked = mask(request)

    def ask(view: View) -> tuple[Loaded, Panel | None, dict[str, Shown | None]]:
        loaded = load(view, request.path_params["run_id"])
        step = loaded.step(key)
        if key is not None and step is None:
            raise NotFound(f"{loaded.run.id} has no step {key[:100]!r}")
        panel = None if step is None else _panel(view, loaded, step, masked)
        return loaded, panel, _ends(view, loaded, masked)

    loaded, panel, ends = await inspection(request).ask(ask)
    shown_steps = loaded.steps
    if not request.query_params.get("inner"):
        kept = None if panel is None or key is None else panel.step.key
        repo = is_repo(loaded.steps)
        shown_steps = [
            step for step in loaded.steps if step.key == kept or not is_inner(step, repo=repo)
        ]
    chosen = whole(request, "from", -1, 0, max(len(shown_steps) - 1, 0))
    first = _first_row(shown_steps, panel, chosen)
    drawn = timeline.outline_of(
        shown_steps, loaded.calls, loaded.step_totals, loaded.begin, loaded.end(now), first
    )
    rows = [line.step for line in drawn.lines]
    children = await inspection(request).ask(lambda view: children_of(view, rows))
    timeline.nest(drawn, children, loaded.end(now))
    texts = await inspection(request).ask(
        lambda view: {
            **told_apart(view, loaded.run.id, rows, masked),
            **_nested_labels(view, drawn, masked),
        }
    )
    repair = await inspection(request).ask(lambda view: _repair(view, loaded, masked))
    entries: list[Entry] = []
    earlier = max(len(loaded.steps) - STEPS, 0)
    if is_conversation(loaded.steps):
        entries = await inspection(request).ask(
            lambda view: read_story(view, loaded, earlier, STEPS, masked)
        )
    context = {
        **common(loaded, now, "timeline", ends["input"], masked),
        "outline": drawn,
        "panel": panel,
        "chosen": key is not None,
        "from": chosen,
        "result": ends["result"],
        "published": published_shown(loaded, masked),
        "labels": texts,
        "hidden": len(loaded.steps) - len(shown_steps),
        "repair": repair,
        "rows": timeline.ROWS,
        "entries": entries,
        "first": earlier,
    }
    if panel is not None and panel.step.error is not None and loaded.failure is not None:
        same = str(panel.step.error) == str(loaded.failure)
        context["failure"] = None if same else loaded.failure  # it is told beside the step
    page = page_of(loaded, "run.html", context, lambda: as_json(loaded, now, panel))
    follows = any(step.kind == "child" and step.ended_at is None for step in rows)
    # The stream of a run's events has those of its children only as far as they reach it.
    return replace(page, every=CHILDREN_EVERY) if follows and not loaded.run.ended else page


def _first_row(steps: Sequence[StepRecord], panel: Panel | None, chosen: int) -> int:
    """Where a long timeline is entered: as asked for, or so that the chosen step is shown."""
    if len(steps) <= timeline.ROWS:
        return 0
    if chosen >= 0:
        return chosen
    keys = [step.key for step in steps]
    if panel is None or panel.step.key not in keys:
        return 0
    return keys.index(panel.step.key) // timeline.ROWS * timeline.ROWS


def told_apart(
    view: View, run_id: str, steps: Sequence[StepRecord], masked: Mask
) -> dict[str, str]:
    """Words that tell steps of one name apart: their labels, or the arguments of each."""
    names = Counter(step.name for step in steps if step.kind in ("step", "child"))
    found = {step.key: masked(step.label) for step in steps if step.label}
    for step in steps:
        if step.label or not 2 < step.input_size <= LABEL_BYTES:
            continue
        if names[step.name] < 2 and not step.name.startswith(run_words.TOOL):
            continue
        given = view.payload(run_id, step.input_seq, 0, LABEL_BYTES)
        if given is not None:
            shown = run_words.object_in(masked(given.data.decode(errors="replace")))
            words = run_words.step_arguments(step.name, shown)
            found[step.key] = run_words.one_line(words, LABEL_WIDTH)
    return found


def _nested_labels(view: View, drawn: timeline.Outline, masked: Mask) -> dict[str, str]:
    """The same for the rows of child runs, by run and step."""
    rows: dict[str, list[StepRecord]] = {}
    for line in drawn.lines:
        if line.run_id:
            rows.setdefault(line.run_id, []).append(line.step)
    return {
        f"{run_id}{key}": text
        for run_id, steps in rows.items()
        for key, text in told_apart(view, run_id, steps, masked).items()
    }


def _result_value(view: View, loaded: Loaded, masked: Mask) -> Any:
    """A run's result as a value; None if there is none, or it is too large for a page."""
    result = loaded.result
    if result is None or result.size > RESULT_BYTES:
        return None
    found = view.payload(loaded.run.id, result.seq, 0, RESULT_BYTES)
    try:
        return None if found is None else json.loads(masked(found.data.decode(errors="replace")))
    except ValueError:
        return None  # damaged: the events page shows it as it is


def _repair(view: View, loaded: Loaded, masked: Mask) -> RepairView | None:
    return repair_of(_result_value(view, loaded, masked))


async def patch_file(request: Request) -> Response:
    """The patch of a run on a repo, as a file for `git apply`."""

    def ask(view: View) -> bytes | None:
        loaded = load(view, request.path_params["run_id"])
        # Not masked: a patch with stars in it would not apply.
        return patch_bytes(_result_value(view, loaded, str))

    data = await inspection(request).ask(ask)
    if data is None:
        raise NotFound("this run has no patch")
    name = f"{request.path_params['run_id']}.patch"
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _panel(view: View, loaded: Loaded, step: StepRecord, masked: Mask) -> Panel:
    calls = [call for call in loaded.calls if call.step_key == step.key]
    output = None
    if step.output_seq is not None:
        output = shown(view, loaded.run.id, step.output_seq, masked)
    return Panel(
        step,
        shown(view, loaded.run.id, step.input_seq, masked),
        output,
        calls,
        view.step_work(loaded.run.id, step.key),
        None if step.error is None else step.error.hint,
    )


def _ends(view: View, loaded: Loaded, masked: Mask) -> dict[str, Shown | None]:
    result = loaded.result
    return {
        "input": shown(view, loaded.run.id, 1, masked),
        "result": None if result is None else shown(view, loaded.run.id, result.seq, masked),
    }


def shown(view: View, run_id: str, seq: int, masked: Mask) -> Shown | None:
    """An event's payload, as much as a page takes."""
    found = view.payload(run_id, seq, 0, SHOWN_BYTES)
    return None if found is None else payloads.show(found, seq, masked)


def common(
    loaded: Loaded, now: float, tab: str, input: Shown | None, masked: Mask
) -> dict[str, Any]:
    """What every page of a run has: its header."""
    run = loaded.run
    return {
        "run": run,
        "status": status_of(run),
        "totals": loaded.totals(now),
        "failure": loaded.failure,
        "failure_hint": None if loaded.failure is None else loaded.failure.hint,
        "tab": tab,
        "input": input,
        "summary": about(run.attributes, masked(loaded.given.decode(errors="replace")), 400),
        "actions": actions_for(loaded),
        "approvals": [(each, approvals.shown(each, masked)) for each in loaded.approvals],
        "asker": approvals.Asker.of(loaded.run, loaded.given, loaded.calls[-1:], masked),
        "log": loaded.log,
        "queue": loaded.queue,
    }


def published_shown(loaded: Loaded, masked: Mask) -> Shown | None:
    """What the run has published, a field for each name, as much as a page takes."""
    if not loaded.published:
        return None
    values = [(each, payloads.masked_value(_value_of(each), masked)) for each in loaded.published]
    fields = [payloads.field(each.name, value) for each, value in values[: payloads.SHOWN_FIELDS]]
    size = sum(len(each.value) for each in loaded.published)
    return Shown(fields, size, is_whole=True, seq=0)


def _value_of(published: Published) -> Any:
    size = len(published.value)
    return json.loads(published.value) if size <= SHOWN_BYTES else f"{size:,} bytes: see the API"


def actions_for(loaded: Loaded) -> list[tuple[str, str, str]]:
    """What can be done to the run as it is: name in the address, label, weight."""
    status, found = loaded.run.status, list[tuple[str, str, str]]()
    if status == "failed":
        found.append(("retry", "Retry from failure", "main"))
    if status in ("paused", "stuck"):
        found.append(("resume", "Resume", "main"))
    found.append(("rerun", "Rerun", ""))
    if any(step.kind == "step" for step in loaded.steps):
        found.append(("fork", "Fork from step…", ""))
    if not loaded.run.ended:
        found.append(("send", "Send event…", ""))
        if loaded.cancelling:  # all that is left is not to wait for its cleaning up
            found.append(("terminate", "Terminate", "danger"))
            return found
        if status not in ("paused", "stuck"):
            found.append(("pause", "Pause", ""))
        found.append(("cancel", "Cancel", "danger"))
    return found


def page_of(
    loaded: Loaded, template: str, context: dict[str, Any], json: Callable[[], Any]
) -> Page:
    """One of a run's pages; live until the run has ended."""
    run = loaded.run
    live = None if run.ended else f"/api/runs/{run.id}/events"
    return Page(template, f"{run.workflow} {run.id}", "runs", context, json, live=live)


def as_json(loaded: Loaded, now: float, panel: Panel | None) -> dict[str, Any]:
    """A run for programs: its beginning if there is much of it, and where the rest is."""
    place = f"/api/runs/{loaded.run.id}"
    more: dict[str, str] = {}
    said = loaded.totals(now)
    if len(loaded.steps) > SHOWN:
        more["steps"] = url(f"{place}/steps", None, after=loaded.steps[SHOWN - 1].key)
    if len(loaded.calls) > SHOWN:
        more["calls"] = url(f"{place}/calls", None, after=loaded.calls[SHOWN - 1].id)
    return {
        "run": views.run_json(loaded.run),
        "totals": {
            "steps": len(loaded.steps),
            **views.totals(loaded.sums),
            "seconds": said["seconds"],
            "busy_seconds": said["busy"],
        },
        "steps": [_step_json(step, loaded.run.id) for step in loaded.steps[:SHOWN]],
        "calls": [views.call_json(call) for call in loaded.calls[:SHOWN]],
        "more": more,
        "published": {each.name: _value_of(each) for each in loaded.published},
        "selected": None if panel is None else panel.step.key,
        "log": loaded.log,
        "queue": loaded.queue,
        "now": now,
    }


def _step_json(step: StepRecord, run_id: str) -> dict[str, Any]:
    """A step as the API shows it, payloads by their addresses, and what its result says of it."""
    more = {"round": step.round, "passed": step.passed, "verdict": step.verdict}
    return {**views.step_json(step, run_id, {}), **more}


# --- events ---

EVENTS = 200
"""Events on one page."""


async def events_page(request: Request) -> Page:
    """The page at /runs/ID/events: the journal as it is."""
    now, masked = time.time(), mask(request)
    loaded, input = await _with_input(request, masked)
    total = len(loaded.journal)
    default = max((total - 1) // EVENTS * EVENTS, 0) if not loaded.run.ended else 0
    first = whole(request, "from", default, 0, max(total - 1, 0))
    rows = loaded.journal[first : first + EVENTS]
    context = {
        **common(loaded, now, "events", input, masked),
        "events": [(row, _facts(row.facts, masked)) for row in rows],
        "first": first,
        "total": total,
        "rows": EVENTS,
    }

    def page_json() -> dict[str, Any]:
        events = [
            {
                "seq": row.seq,
                "type": row.type,
                "key": row.key,
                "at": row.at,
                "facts": row.facts,
                "bytes": row.size,
            }
            for row in rows
        ]
        return {"events": events, "from": first, "total": total, "log": loaded.log}

    return page_of(loaded, "events.html", context, page_json)


async def _with_input(request: Request, masked: Mask) -> tuple[Loaded, Shown | None]:
    """The run that is asked for, and what it was given."""

    def ask(view: View) -> tuple[Loaded, Shown | None]:
        loaded = load(view, request.path_params["run_id"])
        return loaded, shown(view, loaded.run.id, 1, masked)

    return await inspection(request).ask(ask)


def _facts(facts: dict[str, Any], masked: Mask) -> str:
    """An event's facts on a line, without what is told elsewhere."""
    told = {name: value for name, value in facts.items() if name not in ("seed", "rebuild")}
    error: Any = told.get("error")
    if isinstance(error, dict):
        told["error"] = f"{error.get('type')}: {error.get('message')}"  # pyright: ignore[reportUnknownMemberType]
    text = "  ".join(f"{name}={_fact(name, value)}" for name, value in told.items())
    return masked(text[:400])


def _fact(name: str, value: Any) -> str:
    if isinstance(value, float) and (name.endswith("_at") or name == "deadline"):
        return moment(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- JSON and payloads ---


async def json_page(request: Request) -> Page:
    """The page at /runs/ID/json: what programs get, for people."""
    now, masked = time.time(), mask(request)
    loaded, input = await _with_input(request, masked)
    data = as_json(loaded, now, None)
    text = masked(json.dumps(data, indent=2, ensure_ascii=False))
    context = {
        **common(loaded, now, "json", input, masked),
        "text": highlight(text[:SHOWN_BYTES], "json"),
        "cut": max(len(text) - SHOWN_BYTES, 0),
    }
    return page_of(loaded, "json.html", context, lambda: data)


WHOLE = 1_000_000_000
"""Bytes: more than SQLite keeps in one place, and within what its substr() takes."""


async def payload(request: Request) -> Response:
    """The whole payload of one event, as text, with secrets masked."""
    run_id, masked = request.path_params["run_id"], mask(request)
    try:
        seq = int(request.path_params["seq"])
    except ValueError as error:
        raise NotFound("an event is named by its number") from error

    def ask(view: View) -> bytes:
        existing(view, run_id)
        found = view.payload(run_id, min(seq, 1 << 62), 0, WHOLE)
        if found is None:
            raise NotFound(f"{run_id} has no event {seq}")
        return masked(found.data.decode(errors="replace")).encode("utf-8", "replace")

    data = await inspection(request).ask(ask)
    name = f"{run_id}-{seq}.json"
    headers = {"content-disposition": f'inline; filename="{name}"', "cache-control": "no-store"}
    # Text, whatever is in it: a browser must not take it for a page.
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


async def frozen_file(request: Request) -> Response:
    """The run as a file that pytest replays, without its secrets."""
    run_id = request.path_params["run_id"]
    store = cast("Engine", request.app.state.engine).store
    run = await store.get(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id[:100]}")
    journal = await store.load(run_id)
    calls = await frozen_calls(current_store(), journal)
    text = freeze(run, journal, calls, (), mask(request)).to_text()
    headers = {
        "content-disposition": f'attachment; filename="{run_id}.json"',
        "cache-control": "no-store",
    }
    return Response(text.encode("utf-8", "replace"), media_type="application/json", headers=headers)
