"""A run as a story: what the model said, what code came of it, what the tests answered.

Steps say by the shape of their results what they are: one with `code` shows it, and what changed
since the last of its name; one with `passed` is a verdict. Everything else is told in a line.
The steps of a tool-calling loop are the turns of a conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from markupsafe import Markup

from holdfast.agents import run_words
from holdfast.gateway.canonical_json import recorded_reply, recorded_request
from holdfast.gateway.messages import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.gateway.messages import Request as ModelRequest
from holdfast.gateway.reply import Completion
from holdfast.records import ErrorInfo
from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector import code_html, payloads
from holdfast.server.inspector.payloads import SHOWN_BYTES, Mask
from holdfast.server.inspector.run_data import Loaded, is_inner, is_repo
from holdfast.store.base import DECIDED
from holdfast.store.inspection import CallRow, View

STEPS = 60
"""Steps on one page of a story."""
LINE = 120
"""Characters of a result that are shown on one line; a longer one is laid out."""
SAID = 20_000
"""Characters of one speech."""
FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S
)


@dataclass(frozen=True)
class Speech:
    """A stretch of text, or code between fences."""

    text: str
    html: Markup | None = None
    language: str = ""


@dataclass(frozen=True)
class ToolUse:
    """A tool the model asked for."""

    name: str
    arguments: Markup | str


@dataclass(frozen=True)
class Said:
    """One model call, as a turn of a conversation."""

    call: CallRow
    asked: list[tuple[str, str]]
    """Who, and what: the messages of the request."""
    reasoning: str
    speech: list[Speech]
    tools: list[ToolUse]
    kept: bool
    """Whether what was said is on record."""


@dataclass
class Entry:
    """What one step adds to the story."""

    step: StepRecord
    said: list[Said] = field(default_factory=list[Said])
    filename: str = ""
    code: Markup | None = None
    code_lines: int = 0
    diff: code_html.Diff | None = None
    unchanged: bool = False
    """The code is the same as before."""
    compared_with: int | None = None
    """The round of the version that it is compared with."""
    note: str = ""
    problem: str = ""
    passed: bool | None = None
    verdict: str = ""
    answer: str = ""
    """What the tests printed, or why they failed."""
    line: str = ""
    """Anything else, on one line."""
    fields: list[payloads.Field] = field(default_factory=list[payloads.Field])
    """Or, if it has several, by its fields."""
    error: ErrorInfo | None = None
    # In a conversation:
    heard: list[str] = field(default_factory=list[str])
    """What the model was told anew by people."""
    speech: list[Speech] = field(default_factory=list[Speech])
    """What it said, by the journal, where the ledger has not kept it."""
    calls: list[str] = field(default_factory=list[str])
    """Tools that it calls; each has a turn of its own."""
    tool: ToolTurn | None = None
    question: Question | None = None


@dataclass(frozen=True)
class RecordedCall:
    """A call with what was said in it."""

    row: CallRow
    request: ModelRequest | None
    reply: Completion | None


def story_of(
    steps: Sequence[StepRecord],
    outputs: Mapping[int, Any],
    told: Mapping[str, Sequence[RecordedCall]],
    earlier: Sequence[StepRecord] = (),
) -> list[Entry]:
    """The entries of these steps; `outputs` has results by their place in the journal.

    `earlier`: steps before these, whose code is what the first changes are compared with.
    """
    latest: dict[str, tuple[str, int | None]] = {}
    for step in earlier:
        _remember(latest, step, outputs)
    entries: list[Entry] = []
    for step in steps:
        entry = Entry(step, error=step.error)
        output = outputs.get(step.output_seq or -1)
        has_code = isinstance(output, dict) and isinstance(output.get("code"), str)  # pyright: ignore[reportUnknownMemberType]
        for call in told.get(step.key, ()):
            entry.said.append(_said(call, with_code=not has_code))
        if isinstance(output, dict):
            _tell(entry, cast("dict[str, Any]", output), latest.get(step.name))
            heard = "\n".join(part.text for said in entry.said for part in said.speech)
            if entry.note.strip() in heard:
                entry.note = ""  # the model has said so just above
        if entry.code is None and entry.passed is None and not entry.said:
            if isinstance(output, dict) and len(json.dumps(output)) > LINE:
                entry.fields = payloads.fields_of(output)
            else:
                entry.line = _line(step, output)
        _remember(latest, step, outputs)
        entries.append(entry)
    return entries


def _remember(
    latest: dict[str, tuple[str, int | None]], step: StepRecord, outputs: Mapping[int, Any]
) -> None:
    output = outputs.get(step.output_seq or -1)
    if isinstance(output, dict):
        source: Any = cast("dict[str, Any]", output).get("code")
        if isinstance(source, str):
            latest[step.name] = (source, step.round)


def _tell(entry: Entry, output: dict[str, Any], before: tuple[str, int | None] | None) -> None:
    """What a step's result adds, if it has one of the shapes we know."""
    source = output.get("code")
    if isinstance(source, str):
        language = payloads.language_in(output)
        entry.filename = _text(output.get("filename"))
        entry.note, entry.problem = _text(output.get("note")), _text(output.get("problem"))
        entry.code = code_html.highlight(source[:SAID], language)
        entry.code_lines = source.count("\n") + 1
        if before is not None:
            entry.diff = code_html.diff(before[0], source, language)
            entry.unchanged, entry.compared_with = before[0] == source, before[1]
    passed = output.get("passed")
    if isinstance(passed, bool):
        entry.passed = passed
        entry.verdict = _text(output.get("summary")) or ("passed" if passed else "not passed")
        entry.answer = _text(output.get("output")) or _text(output.get("error"))


def _text(value: Any) -> str:
    return value[:SAID] if isinstance(value, str) else ""


def _line(step: StepRecord, output: Any) -> str:
    if step.kind != "step" and output is None:
        return ""
    if output is None or output == {}:
        return ""
    text = json.dumps(output, ensure_ascii=False) if not isinstance(output, str) else output
    return text[:300] + ("…" if len(text) > 300 else "")


def _said(told: RecordedCall, *, with_code: bool) -> Said:
    reply, tools, reasoning, text = told.reply, list[ToolUse](), "", ""
    if reply is not None:
        text = reply.text
        reasoning = "".join(p.text for p in reply.parts if isinstance(p, ReasoningPart))
        tools = [tool_use(p) for p in reply.parts if isinstance(p, ToolCallPart)]
    asked = [] if told.request is None else asked_in(told.request)
    return Said(
        told.row,
        asked,
        reasoning[:SAID],
        speech_of(text[:SAID], with_code=with_code),
        tools,
        reply is not None,
    )


def tool_use(part: ToolCallPart) -> ToolUse:
    """A wish to call a tool, its arguments laid out if they are JSON."""
    try:
        text = json.dumps(json.loads(part.arguments or "{}"), ensure_ascii=False, indent=2)
    except ValueError:
        return ToolUse(part.name, part.arguments[:SAID])
    return ToolUse(part.name, code_html.highlight(text[:SAID], "json"))


def asked_in(request: ModelRequest) -> list[tuple[str, str]]:
    """The messages of a request, as role and text."""
    found: list[tuple[str, str]] = []
    for message in request.messages:
        parts: list[str] = []
        for part in message.parts:
            if isinstance(part, TextPart | ToolResultPart | ReasoningPart):
                parts.append(part.text)
            elif isinstance(part, ToolCallPart):
                parts.append(f"{part.name}({part.arguments})")
            else:
                parts.append(f"[{part.type}]")
        found.append((message.role, "\n".join(parts)[:SAID]))
    return found


def speech_of(text: str, *, with_code: bool = True) -> list[Speech]:
    """A model's words, code between fences apart, coloured by the language it names."""
    found: list[Speech] = []
    reached = 0
    for fence in FENCE.finditer(text):
        _add_words(found, text[reached : fence.start()])
        if with_code:
            language, source = fence[2] or "python", fence[3].rstrip("\n")
            found.append(Speech(source, code_html.highlight(source, language), language))
        reached = fence.end()
    _add_words(found, text[reached:])
    return found


def _add_words(found: list[Speech], text: str) -> None:
    if text.strip():
        found.append(Speech(text.strip("\n")))


# --- a conversation ---


@dataclass(frozen=True)
class ToolTurn:
    """A call of a tool: what it was given, and what it told the model."""

    arguments: list[payloads.Field]
    told: list[payloads.Field]
    status: str
    """done, failed, unknown; empty while it is under way"""


@dataclass(frozen=True)
class Question:
    """What somebody was asked to decide, and how they decided."""

    title: str
    arguments: list[payloads.Field]
    asked_of: str
    status: str
    by: str = ""
    note: str = ""
    decided_at: float | None = None


def _converse(
    entries: Sequence[Entry], inputs: Mapping[str, Any], outputs: Mapping[int, Any]
) -> list[Entry]:
    """The entries of a tool-calling loop as turns: what was asked, said, called and decided.

    A question is one turn with its decision; the reply of a model shows the tools that it calls
    by their own turns.
    """
    answers = _answers(entries, outputs)
    called = {entry.step.name for entry in entries if entry.step.name.startswith(run_words.TOOL)}
    found: list[Entry] = []
    for entry in entries:
        step, given = entry.step, _named(inputs.get(entry.step.key))
        output = _named(outputs.get(step.output_seq or -1))
        if step.name.startswith(run_words.THINKS):
            _think(entry, given, output, called)
        elif step.name.startswith(run_words.TOOL):
            entry.tool = _tool_turn(given, output)
            entry.line, entry.fields = "", []
        elif step.name == run_words.ASK:
            entry.question = _question(given, output, answers)
            entry.line, entry.fields = "", []
        elif is_inner(step, repo=False) or step.name.startswith(DECIDED):
            continue  # told by the question, or nothing to tell
        elif step.kind == "step" and given and not (entry.line or entry.fields or entry.said):
            entry.fields = payloads.fields_of(given)  # it gave nothing back: what it was given
        found.append(entry)
    return found


def _named(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _think(entry: Entry, given: dict[str, Any], output: dict[str, Any], called: set[str]) -> None:
    """What the model was told anew, said, and calls."""
    added: list[dict[str, Any]] = given.get("added") or []
    for message in added:
        told_now: list[dict[str, Any]] = message.get("parts") or []
        text = "\n".join(str(part["text"]) for part in told_now if "text" in part)
        if message.get("role") == "user" and text.strip():
            entry.heard.append(text[:SAID])
    parts: list[dict[str, Any]] = output.get("parts") or []
    if not any(said.kept for said in entry.said):  # the ledger may not keep what was said
        text = "\n".join(str(part["text"]) for part in parts if part.get("type") == "text")
        entry.speech = speech_of(text[:SAID])
    tools = [str(part.get("name")) for part in parts if part.get("type") == "tool_call"]
    entry.calls = [name for name in tools if f"{run_words.TOOL}{name}" in called]
    entry.line, entry.fields = "", []
    for said in entry.said:
        said.tools[:] = [each for each in said.tools if each.name not in entry.calls]


def _tool_turn(given: dict[str, Any], output: dict[str, Any]) -> ToolTurn:
    told = run_words.tool_words(output) if output else ""
    status = str(output.get("status", "")) or ("failed" if output.get("is_error") else "")
    arguments = payloads.fields_of(given.get("arguments") or {})
    return ToolTurn(arguments, _result_fields(told), status)


def _result_fields(text: str) -> list[payloads.Field]:
    """What a tool told: an object by its fields, anything else as text."""
    inside = payloads.json_in(text)
    if isinstance(inside, dict):
        return payloads.fields_of(inside)
    return [payloads.field("", text)] if text else []


def _answers(entries: Sequence[Entry], outputs: Mapping[int, Any]) -> dict[str, dict[str, Any]]:
    """How each approval stood when the run read it last, by its id."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.step.name == run_words.READ:
            read = _named(outputs.get(entry.step.output_seq or -1))
            found[str(read.get("id", ""))] = read
    return found


def _question(
    given: dict[str, Any], output: dict[str, Any], answers: Mapping[str, dict[str, Any]]
) -> Question:
    asked = _named(given.get("question"))
    answer = answers.get(str(output.get("id", "")), {})
    return Question(
        _text(asked.get("title")),
        payloads.fields_of(asked.get("arguments")),
        _text(asked.get("asked_of")),
        _text(answer.get("status")) or "waiting",
        _text(answer.get("decided_by")),
        _text(answer.get("note")),
        answer.get("decided_at"),
    )


def is_conversation(steps: Sequence[StepRecord]) -> bool:
    """Whether a run is a tool-calling agent's: its steps are the turns of a conversation."""
    thinks = any(step.name.startswith(run_words.THINKS) for step in steps)
    return thinks and not is_repo(steps)


# --- reading ---

READ_BYTES = 8 * SHOWN_BYTES
"""A result larger than this is named, not told."""


def read_story(view: View, loaded: Loaded, first: int, count: int, masked: Mask) -> list[Entry]:
    """The entries of a run's steps from `first` on."""
    told = loaded.steps[first : first + count]
    before = _with_code_before(loaded.steps[:first], told)
    outputs = _outputs(view, loaded.run.id, [*before, *told], masked)
    entries = story_of(told, outputs, _calls(view, loaded, told), before)
    if not is_conversation(loaded.steps):
        return entries
    return _converse(entries, _inputs(view, loaded.run.id, told, masked), outputs)


def _inputs(view: View, run_id: str, steps: Sequence[StepRecord], masked: Mask) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for step in steps:
        if step.kind == "step" and 0 < step.input_size <= READ_BYTES:
            value = _payload(view, run_id, step.input_seq, masked)
            if value is not None:
                found[step.key] = value
    return found


def _with_code_before(
    earlier: Sequence[StepRecord], told: Sequence[StepRecord]
) -> list[StepRecord]:
    """The last step of each name before the page, for its code to be compared with."""
    names = {step.name for step in told}
    latest = {step.name: step for step in earlier if step.name in names and step.output_seq}
    return list(latest.values())


def _outputs(view: View, run_id: str, steps: Sequence[StepRecord], masked: Mask) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for step in steps:
        seq = step.output_seq
        if seq is None or step.output_size > READ_BYTES:
            continue
        value = _payload(view, run_id, seq, masked)
        if value is not None:
            found[seq] = value
    return found


def _payload(view: View, run_id: str, seq: int, masked: Mask) -> Any:
    found = view.payload(run_id, seq, 0, READ_BYTES)
    try:
        return None if found is None else json.loads(masked(found.data.decode(errors="replace")))
    except ValueError:
        return None  # damaged: the events page shows it as it is


def _calls(
    view: View, loaded: Loaded, steps: Sequence[StepRecord]
) -> dict[str, list[RecordedCall]]:
    keys = {step.key for step in steps}
    found: dict[str, list[RecordedCall]] = {}
    for row in loaded.calls:
        if row.step_key is None or row.step_key not in keys:
            continue
        call = view.call(row.id)
        if call is not None:
            told = RecordedCall(row, recorded_request(call), recorded_reply(call))
            found.setdefault(row.step_key, []).append(told)
    return found
