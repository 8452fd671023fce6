"""Starting a run from a page: a workflow, a form made from its type hints, and a key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import UsageError
from holdfast.runtime.client import create_run
from holdfast.runtime.definitions import Workflow, find_workflow, registered
from holdfast.runtime.engine import Engine
from holdfast.server.inspector.pages import Page, seen

WIDGETS = {"string": "text", "integer": "number", "number": "number", "boolean": "checkbox"}
INPUT = "in."
"""Before the names of the workflow's arguments among those of the form."""


@dataclass(frozen=True)
class FormField:
    """An argument of a workflow, as the form asks for it."""

    name: str
    widget: str
    """text, number, checkbox, choice or json"""
    required: bool
    value: str
    choices: tuple[str, ...] = ()
    hint: str = ""


def fields_of(schema: dict[str, Any] | None) -> list[FormField] | None:
    """The form for a workflow's arguments; None if its types have no schema."""
    if schema is None:
        return None
    required = cast("list[str]", schema.get("required") or [])
    shapes = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return [_field(name, shape, name in required) for name, shape in shapes.items()]


def _field(name: str, shape: dict[str, Any], required: bool) -> FormField:
    hint = str(shape.get("description", ""))
    choices = shape.get("enum")
    default: Any = shape.get("default")
    if isinstance(choices, list) and all(
        isinstance(each, str) for each in cast("list[Any]", choices)
    ):
        known = tuple(cast("list[str]", choices))
        return FormField(name, "choice", required, default or "", known, hint)
    widget = WIDGETS.get(str(shape.get("type")), "json")
    if widget == "checkbox":
        return FormField(name, widget, False, "on" if default else "", (), hint)
    if widget == "text":
        return FormField(name, widget, required, default or "", (), hint)
    text = "" if default is None else json.dumps(default, ensure_ascii=False)
    return FormField(name, widget, required, text, (), hint)


async def ask_start(request: Request) -> Page:
    """The page that asks for a workflow and its arguments."""
    return _page(request.query_params.get("workflow") or "", {}, "")


def _page(name: str, given: dict[str, str], wrong: str) -> Page:
    known = sorted(registered())
    chosen = name or (known[0] if len(known) == 1 else "")
    workflow = find_workflow(chosen[:500]) if chosen else None
    fields = None if workflow is None else fields_of(workflow.signature.schema())
    context: dict[str, Any] = {
        "workflows": known,
        "workflow": workflow,
        "about": "" if workflow is None else (workflow.function.__doc__ or "").strip(),
        "fields": fields,
        "given": given,
        "wrong": wrong,
        "log": 0,
    }

    def as_json() -> dict[str, Any]:
        return {
            "workflows": known,
            "workflow": chosen or None,
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
        created = await create_run(engine, workflow.options(key=key), text, same_input=True)
    except UsageError as error:
        given = {each: _text(form, each) for each in form}
        return _page(name, given, f"{error.message}. {error.hint or ''}".strip())
    return seen(f"/runs/{created.run.id}")


def _input(form: FormData, workflow: Workflow[..., Any]) -> dict[str, Any]:
    fields = fields_of(workflow.signature.schema())
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
        elif text.strip():
            given[field.name] = _json(text, field.name)
    return given


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is invalid JSON: {error}", hint="a text needs quotes") from error


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""
