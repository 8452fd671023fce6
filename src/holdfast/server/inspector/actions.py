"""What can be done to runs from pages: each asks first, and says what will happen.

The asking pages work by themselves; with script they open as dialogs. What is done is done by
the client that everyone uses; what a run's state does not allow is refused there.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response

from holdfast import config
from holdfast.agents.settings import PROFILE
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.records import ENDED, Run
from holdfast.runtime.client import RunHandle, create_run, get_run, send_event
from holdfast.runtime.definitions import Workflow, find_workflow, registered
from holdfast.runtime.engine import Engine
from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector.pages import Page, inspection, seen, url
from holdfast.server.inspector.run_data import Loaded, load
from holdfast.server.inspector.runs import GROUPS, given_of, status_of, which_of
from holdfast.store.inspection import RunQuery, View

EDITABLE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Plain:
    """An action with nothing to fill in: what it is called, and what it will do."""

    title: str
    says: str
    button: str
    do: Callable[[RunHandle[Any]], Awaitable[object]]
    danger: bool = False


PLAIN = {
    "cancel": Plain(
        "Cancel this run?",
        "Steps under way are interrupted and its finally blocks run. What it has recorded stays.",
        "Cancel the run",
        lambda run: run.cancel(),
        danger=True,
    ),
    "terminate": Plain(
        "Terminate this run?",
        "It ends at once, without its finally blocks. The children it waits for are cancelled.",
        "Terminate the run",
        lambda run: run.terminate(),
        danger=True,
    ),
    "pause": Plain(
        "Pause this run?",
        "Steps under way finish; nothing new begins until it is resumed.",
        "Pause the run",
        lambda run: run.pause(),
    ),
    "resume": Plain(
        "Resume this run?",
        "It goes on from where it is. If it was stuck, its code has to fit its journal again.",
        "Resume the run",
        lambda run: run.resume(),
    ),
    "retry": Plain(
        "Retry from where it failed?",
        "Steps that succeeded are kept and not done again. The step that failed runs once more.",
        "Retry from failure",
        lambda run: run.retry(),
    ),
}


async def _loaded(request: Request) -> Loaded:
    run_id = request.path_params["run_id"]
    return await inspection(request).ask(lambda view: load(view, run_id))


async def ask_plain(request: Request) -> Page:
    """The page that asks whether to cancel, terminate, pause, resume or retry."""
    name = request.path_params["action"]
    if name not in PLAIN:
        raise NotFound(f"there is no action {name[:50]!r}")
    loaded, action = await _loaded(request), PLAIN[name]
    context: dict[str, Any] = {"run": loaded.run, "action": action, "name": name, "log": 0}
    if name == "retry":
        context["failed"] = loaded.step(None)
        context["kept"] = sum(step.status == "completed" for step in loaded.steps)
    return Page("confirm.html", action.title, "runs", context, lambda: {"action": name})


async def do_plain(request: Request) -> Response:
    """Cancel, pause, resume or retry."""
    name, run_id = request.path_params["action"], request.path_params["run_id"]
    if name not in PLAIN:
        raise NotFound(f"there is no action {name[:50]!r}")
    await PLAIN[name].do(await get_run(run_id))
    return seen(f"/runs/{run_id}")


# --- rerun and fork ---


@dataclass(frozen=True)
class Reuse:
    """What a fork takes over, and what it does again."""

    reused: list[StepRecord]
    again: list[StepRecord]


def reuse(steps: list[StepRecord], step: StepRecord | None) -> Reuse:
    """What is on record before a step is taken over; what ended later is done again."""
    if step is None:
        return Reuse([], steps)
    reused = [each for each in steps if each.output_seq is not None and each.output_seq < step.seq]
    kept = {each.key for each in reused}
    return Reuse(reused, [each for each in steps if each.key not in kept])


async def ask_rerun(request: Request) -> Page:
    """The page that asks for the input of a new run like this one."""
    return await _ask_fork(request, None)


async def ask_fork(request: Request) -> Page:
    """The page that asks for the step, and its input, to go on from in a new run."""
    key = request.query_params.get("step") or None
    loaded = await _loaded(request)
    forkable = [step for step in loaded.steps if step.kind == "step"]
    if not forkable:
        raise NotFound(f"{loaded.run.id} has no step to fork from yet")
    opened = loaded.step(key)
    if opened is None or opened.kind != "step":
        if key is not None:
            raise NotFound(f"{loaded.run.id} has no step {key[:100]!r} to fork from")
        opened = forkable[-1]
    return await _ask_fork(request, opened.key)


async def _ask_fork(request: Request, key: str | None) -> Page:
    run_id = request.path_params["run_id"]

    def ask(view: View) -> tuple[Loaded, StepRecord | None, str | None]:
        loaded = load(view, run_id)
        step = None if key is None else loaded.step(key)
        seq = 1 if step is None else step.input_seq
        found = view.payload(run_id, seq, 0, EDITABLE_BYTES)
        text = None
        if found is not None and found.is_whole:
            text = _laid_out(found.data)
        return loaded, step, text

    loaded, step, text = await inspection(request).ask(ask)
    split = reuse(loaded.steps, step)
    context: dict[str, Any] = {
        "run": loaded.run,
        "step": step,
        "steps": [each for each in loaded.steps if each.kind == "step"][-500:],
        "reused": split.reused,
        "again": split.again,
        "text": text,
        "log": 0,
    }
    title = "Rerun" if step is None else "Fork from a step"

    def as_json() -> dict[str, Any]:
        return {
            "run": run_id,
            "step": None if step is None else step.key,
            "reused": [each.key for each in split.reused],
            "again": [each.key for each in split.again],
        }

    return Page("fork.html", title, "runs", context, as_json)


def _laid_out(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except ValueError:
        return data.decode(errors="replace")


async def do_fork(request: Request) -> Response:
    """Make the new run, with what was changed of the input, and show it."""
    run_id, form = request.path_params["run_id"], await request.form()
    key = _text(form, "step") or None
    edited = _text(form, "input").strip()

    def ask(view: View) -> bytes | None:
        loaded = load(view, run_id)
        step = None if key is None else loaded.step(key)
        if key is not None and step is None:
            raise NotFound(f"{run_id} has no step {key[:100]!r}")
        seq = 1 if step is None else step.input_seq
        found = view.payload(run_id, seq, 0, EDITABLE_BYTES)
        return found.data if found is not None and found.is_whole else None

    recorded = await inspection(request).ask(ask)
    changes = changed(recorded, edited) if edited and recorded is not None else None
    handle = await get_run(run_id)
    forked = await handle.fork(key, input=changes)
    return seen(f"/runs/{forked.id}")


def changed(recorded: bytes, edited: str) -> dict[str, Any] | None:
    """The arguments that were edited; None if none was."""
    before, after = parsed(recorded.decode(), "what is recorded"), parsed(edited, "the input")
    if not isinstance(after, dict) or not isinstance(before, dict):
        raise UsageError("the input is no JSON object", hint="name the arguments, as before")
    old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
    missing = [name for name in old if name not in new]
    if missing:
        raise UsageError(
            f"the input lacks {', '.join(missing)}", hint="arguments can't be left out"
        )
    fresh = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return fresh or None


def parsed(text: str, what: str) -> Any:
    """A JSON value from a form."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is no JSON: {error}", hint="a text needs quotes") from error


# --- events ---


async def ask_send(request: Request) -> Page:
    """The page that asks which event to send to the run."""
    loaded = await _loaded(request)
    waits = [
        step
        for step in loaded.steps
        if step.kind == "wait" and step.ended_at is None and not step.name.startswith("@")
    ]
    context: dict[str, Any] = {
        "run": loaded.run,
        "waits": waits,
        "name": request.query_params.get("name") or (waits[-1].name if waits else ""),
        "log": 0,
    }

    def as_json() -> dict[str, Any]:
        return {"run": loaded.run.id, "waits": [step.name for step in waits]}

    return Page("send.html", "Send an event", "runs", context, as_json)


async def do_send(request: Request) -> Response:
    """Send an event to this run alone."""
    run_id, form = request.path_params["run_id"], await request.form()
    name = _text(form, "name").strip()
    if not name:
        raise UsageError("an event needs a name")
    text = _text(form, "payload").strip()
    await send_event(name, parsed(text, "the payload") if text else None, run=run_id)
    return seen(f"/runs/{run_id}")


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def back_to(form: FormData) -> str:
    """The list that something was done from: its own path with the same filter."""
    query = _text(form, "back")
    return f"/runs?{query}" if query else url("/runs")


# --- cancelling many runs at once: those that were ticked, or all that fit the filter ---

MOST_CANCELLED = 500
"""Runs cancelled by one request."""


async def ask_bulk(request: Request) -> Page:
    """The page that shows which runs would be cancelled."""
    query = request.query_params
    runs = await inspection(request).ask(lambda view: _chosen(view, query))
    back = urlencode(given_of(query), doseq=True)
    context: dict[str, Any] = {
        "runs": runs,
        "most": MOST_CANCELLED,
        "back": back,
        "ticked": bool(query.getlist("run")),
        "status_of": status_of,
        "log": 0,
    }
    return Page(
        "bulk.html", "Cancel runs", "runs", context, lambda: {"runs": [run.id for run in runs]}
    )


def _chosen(view: View, query: QueryParams) -> list[Run]:
    """The runs that were ticked, or that fit the filter, as far as they can be cancelled."""
    ids = [id for id in query.getlist("run") if id][:MOST_CANCELLED]
    if not ids:
        which = which_of(query, time.time())
        if not which.status:
            which = RunQuery(
                which.workflow,
                (*GROUPS["active"], "stuck"),
                which.attributes,
                which.since,
                which.until,
                which.search,
                which.parent,
            )
        ids = view.matching_runs(which, MOST_CANCELLED)
    runs = [view.run(id) for id in ids]
    return [run for run in runs if run is not None and run.status not in ENDED]


async def do_bulk(request: Request) -> Response:
    """Cancel the runs that were shown."""
    form = await request.form()
    ids = [id for id in form.getlist("run") if isinstance(id, str)][:MOST_CANCELLED]
    if not ids:
        raise UsageError("no run was chosen", hint="tick some in the list of runs")
    for id in ids:
        run = await get_run(id)
        try:
            await run.cancel()
        except Refused:
            continue  # it ended by itself since the page was shown
    back = form.get("back")
    return seen(f"/runs?{back}" if isinstance(back, str) and back else "/runs")


# --- starting a run: a workflow, a form made from its type hints, and a key ---

WIDGETS = {"string": "text", "integer": "number", "number": "number", "boolean": "checkbox"}
INPUT = "in."
"""Before the names of the workflow's arguments among those of the form."""


@dataclass(frozen=True)
class FormField:
    """An argument of a workflow, as the form asks for it."""

    name: str
    widget: str
    """text, number, either (a number or a text), lines (a list of texts), checkbox, choice, json"""
    required: bool
    value: str
    choices: tuple[str, ...] = ()
    hint: str = ""


def fields_of(workflow: Workflow[..., Any]) -> list[FormField] | None:
    """The form for a workflow's arguments; None if its types have no schema."""
    schema = workflow.signature.schema()
    if schema is None:
        return None
    required = cast("list[str]", schema.get("required") or [])
    shapes = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    parameters = inspect.signature(workflow.function).parameters
    return [
        _field(name, shape, name in required, parameters[name].default)
        for name, shape in shapes.items()
    ]


def _field(name: str, shape: dict[str, Any], required: bool, default: Any) -> FormField:
    """The field for an argument; what it is unless given is said, and need not be typed."""
    widget, choices = _widget(shape)
    if widget == "checkbox":
        return FormField(name, widget, False, "on" if default is True else "")
    hint = str(shape.get("description", ""))
    if not required and default not in (None, "", (), []):
        hint = f"{hint} {default} unless given".strip()[:200]
    return FormField(name, widget, required, "", choices, hint)


def _widget(shape: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """What asks for a value of this shape, and the choices there are."""
    either = cast("list[dict[str, Any]]", shape.get("anyOf") or [])
    kinds = [each for each in either if each.get("type") != "null"]
    if len(kinds) == 1:
        return _widget(kinds[0])
    if kinds and all(each.get("type") in ("string", "number", "integer") for each in kinds):
        return "either", ()
    choices = cast("list[Any]", shape.get("enum") or [])
    if choices and all(isinstance(each, str) for each in choices):
        return "choice", tuple(choices)
    items = cast("dict[str, Any]", shape.get("items") or {})
    if shape.get("type") == "array" and items.get("type") == "string" and "enum" not in items:
        return "lines", ()
    return WIDGETS.get(str(shape.get("type")), "json"), ()


async def ask_start(request: Request) -> Page:
    """The page that asks for a workflow and its arguments."""
    return _page(request.query_params.get("workflow") or "", {}, "")


def _page(name: str, given: dict[str, str], wrong: str) -> Page:
    known = sorted(registered())
    chosen = name or (known[0] if len(known) == 1 else "")
    workflow = find_workflow(chosen[:500]) if chosen else None
    fields = None if workflow is None else fields_of(workflow)
    profiles = config.profiles()
    context: dict[str, Any] = {
        "workflows": known,
        "workflow": workflow,
        "about": "" if workflow is None else (workflow.function.__doc__ or "").strip(),
        "fields": fields,
        "given": given,
        "wrong": wrong,
        "profiles": profiles,
        "log": 0,
    }

    def as_json() -> dict[str, Any]:
        return {
            "workflows": known,
            "workflow": chosen or None,
            "profile": profiles[0],
            "profiles": profiles,
            "input": None if workflow is None else workflow.signature.schema(),
        }

    status = 400 if wrong else 200
    return Page("start.html", "Start a run", "runs", context, as_json, status)


async def do_start(request: Request) -> Page | Response:
    """Start the run and show it; what is wrong with the input is said beside the form."""
    form = await request.form()
    name = _text(form, "workflow")
    workflow = find_workflow(name[:500])
    try:
        input = _input(form, workflow)
        key = _text(form, "key").strip() or None
        if key is not None and (len(key) > 255 or not (key.isascii() and key.isprintable())):
            raise UsageError("the key is invalid", hint="1 to 255 printable ASCII characters")
        engine = cast("Engine", request.app.state.engine)
        text = json.dumps(input, ensure_ascii=False).encode()
        named = _text(form, "profile")
        attributes = {PROFILE: config.check_profile(named[:200])} if named else {}
        chosen = workflow.options(key=key, attributes=attributes)
        created = await create_run(engine, chosen, text, same_input=True)
    except UsageError as error:
        given = {each: _text(form, each) for each in form}
        return _page(name, given, f"{error.message}. {error.hint or ''}".strip())
    return seen(f"/runs/{created.run.id}")


def _input(form: FormData, workflow: Workflow[..., Any]) -> dict[str, Any]:
    fields = fields_of(workflow)
    if fields is None:
        found = _json(_text(form, "input") or "{}", "the input")
        if not isinstance(found, dict):
            raise UsageError("the input is not a JSON object")
        return cast("dict[str, Any]", found)
    given: dict[str, Any] = {}
    for field in fields:
        text = _text(form, INPUT + field.name)
        if field.widget == "checkbox":
            given[field.name] = text == "on"
        elif field.widget in ("text", "choice"):
            if text or field.required:
                given[field.name] = text
        elif field.widget == "lines":
            if found := [line.strip() for line in text.splitlines() if line.strip()]:
                given[field.name] = found
        elif field.widget == "either":
            if text.strip():
                number = _number(text)
                given[field.name] = text.strip() if number is None else number
        elif text.strip():
            given[field.name] = _json(text, field.name)
    return given


def _number(text: str) -> int | float | None:
    """A number, if the text is one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if is_number else None


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is invalid JSON: {error}", hint="a text needs quotes") from error
