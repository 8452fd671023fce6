"""Runs and their steps in words, for terminals and pages: what they are about and are called.

Steps of the tool-calling loop and of the ready-made agents are told as what they are: the model
thinks, a tool is called with arguments, somebody is asked. Pure functions of recorded JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from holdfast.records.live import ANSWER, UPDATE
from holdfast.runtime.step_records import END_OF
from holdfast.store.base import DECIDED

TASKS = ("task", "issue", "prompt", "question", "message", "text")
"""Arguments that say what is wanted in a person's words, as agents call them."""
THINKS = ("generate_text ", "stream_text ", "generate_object ")
TOOL = "tool "
ASK, READ = "ask for approval", "read the decision"
_WEBHOOK = "@webhook/"
_NAMES = {"take_repo": "take the repo", "try_repair": "try", ASK: "ask"}
_INNER = frozenset({READ, "use the approval", "withdraw the approval"})
_INNER_OF_REPO = _INNER | {
    "settle", "open_workspace", "close_workspace", "let_go", "add_up", "join_budget"
}  # fmt: skip


def object_in(raw: bytes | str | None) -> dict[str, Any]:
    """The object that a payload is; an empty one for anything else."""
    try:
        found: Any = json.loads(raw) if raw else None
    except ValueError:  # cut off
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def one_line(text: str, width: int) -> str:
    """The first line of a text, cut to a width."""
    line = next((part.strip() for part in text[: width * 4].splitlines() if part.strip()), "")
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


# --- runs ---


def about(attributes: Mapping[str, Any], input: bytes | str, width: int = 160) -> str:
    """What a run is about: its `task` attribute, its task in words, or its arguments."""
    task = attributes.get("task")
    if isinstance(task, str) and task.strip():
        return one_line(task, width)
    text = input.decode(errors="replace") if isinstance(input, bytes) else input
    try:
        given: Any = json.loads(text or "{}")
    except ValueError:  # cut off
        return one_line(" ".join(text.translate(_MARKS).split()), width)
    return one_line(_wanted(given) or arguments(given), width)


_MARKS = str.maketrans('{}"', "   ")


def _wanted(given: Any) -> str:
    """A task in a person's words, here or one level down (a ticket's text)."""
    if not isinstance(given, dict):
        return ""
    named = cast("dict[str, Any]", given)
    for name in TASKS:
        value = named.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
    inner = [_wanted(value) for value in named.values() if isinstance(value, dict)]
    return inner[0] if len(inner) == len(named) == 1 else ""


def arguments(given: Any) -> str:
    """Arguments on a line: `name=value`; a single text as it is."""
    if not isinstance(given, dict):
        return "" if given is None else _said(given)
    named = cast("dict[str, Any]", given)
    texts = [value for value in named.values() if isinstance(value, str) and value.strip()]
    if len(texts) == 1 and len(named) == 1:
        return " ".join(texts[0].split())
    return "  ".join(f"{name}={_said(value)}" for name, value in named.items() if value is not None)


def _said(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, 60)
    return one_line(json.dumps(value, ensure_ascii=False), 60)


# --- steps ---


def step_name(kind: str, name: str) -> str:
    """What to call a step: the function's name, the tool's, or what is waited for."""
    if kind == "webhook":
        return "webhook made"
    if kind != "wait":
        if name.startswith(THINKS):
            return "think"
        return _NAMES.get(name, name.removeprefix(TOOL))
    if name.startswith(END_OF):
        return "end of run"
    if name.startswith(UPDATE):
        return f"update {name.removeprefix(UPDATE)}"
    if name.startswith(ANSWER):
        return f"answer of {name.removeprefix(ANSWER).partition('/')[0]}"
    if name.startswith(_WEBHOOK):
        return "webhook called"
    return "decision" if name.startswith(DECIDED) else name


def is_inner(kind: str, name: str, status: str, *, repo: bool = False) -> bool:
    """Whether a step is set-up, clean-up or a clock, and says nothing of what the run is about.

    A clock is a timer that nobody waits for any more: a time limit that was kept. `repo`: of the
    repo agent, whose own names elsewhere are anybody's.
    """
    if kind == "timer":
        return name == "timer" and status == "cancelled"
    inner = _INNER_OF_REPO if repo else _INNER
    return kind == "step" and name in inner and status == "completed"


def step_arguments(name: str, given: Mapping[str, Any]) -> str:
    """What tells a call of a step from others: its arguments on a line."""
    if name.startswith(THINKS):
        return ""
    if name.startswith(TOOL):
        given = cast("Mapping[str, Any]", given.get("arguments") or {})
    elif name == ASK:
        question: Any = given.get("question") or {}
        return f"{question.get('title', '')}  {arguments(question.get('arguments'))}".strip()
    return arguments(dict(given))


def step_outcome(name: str, found: Mapping[str, Any]) -> str:
    """What came of a step of the tool-calling loop, in words."""
    if name.startswith(THINKS):
        return reply_words(found)
    if name.startswith(TOOL):
        return tool_words(found)
    by = found.get("decided_by")
    return str(found.get("status", "")) + (f" by {by}" if by else "")


def reply_words(reply: Mapping[str, Any]) -> str:
    """What a model's reply says, and which tools it calls."""
    parts: list[dict[str, Any]] = reply.get("parts") or []
    called = [str(part.get("name")) for part in parts if part.get("type") == "tool_call"]
    said = " ".join(str(part.get("text")) for part in parts if part.get("type") == "text")
    return "  ".join(word for word in (said, f"→ {', '.join(called)}" if called else "") if word)


def tool_words(output: Mapping[str, Any]) -> str:
    """What a tool told the model."""
    parts: list[dict[str, Any]] = output.get("content") or []
    return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)
