"""The scripted demo model: knows a few tasks by heart, and says so.

It is no model. It shows, without a key or a network, what the agent does with one: its answers
are in demo_tasks/, the first of some of them wrong on purpose, and everything else (the tests
that are run, the sandbox, the verdict, the healing) is real. For any other task it says that a
real model is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from holdfast.agents.models import NONE_USABLE, Chosen, choose
from holdfast.agents.settings import CodeSettings
from holdfast.errors import FatalError
from holdfast.gateway import Gateway, Say, ScriptedModel
from holdfast.gateway.messages import Request

MODEL = "scripted/demo"
WHAT_IT_IS = "the scripted demo model, no AI: it knows a few tasks by heart"
HOW_TO_GET_ONE = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key, or start Ollama or llama.cpp "
    "on this machine, and start the task again: the new model is used by itself "
    "(`holdfast models list` shows what is usable)"
)
_SECTION = re.compile(r"^## (.+?)$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_QUESTION = re.compile(
    r"The task:\n\n(.*?)\n\n(?:The program, |These are tests for it, )", re.DOTALL
)
_PAUSE = 0.02  # seconds before each piece of an answer, so that there is something to see


@dataclass(frozen=True, slots=True)
class Known:
    """A task it knows."""

    name: str
    tasks: frozenset[str]
    """How it may be put, to the letter but for case, spaces and a full stop."""
    language: str
    answers: dict[str, str]
    """By section: `First answer` (with a mistake, if there is one), `Answer`, `Tests`."""


@cache
def known_tasks() -> tuple[Known, ...]:
    """The tasks it knows."""
    folder = resources.files("holdfast.agents.code") / "demo_tasks"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".md")), key=lambda f: f.name)
    return tuple(_read(f.name, f.read_text(encoding="utf-8")) for f in files)


def _read(name: str, text: str) -> Known:
    head = text.partition("\n## ")[0].split("\n")
    return Known(
        name.removesuffix(".md").removesuffix("_ts"),
        frozenset(_plain(line.removeprefix("- ")) for line in head if line.startswith("- ")),
        head[1].removeprefix("In ").rstrip(":"),
        {name: body.strip() for name, body in _SECTION.findall(text)},
    )


def _plain(task: str) -> str:
    return " ".join(task.split()).rstrip(".!").casefold()


def find(task: str, language: str) -> Known | None:
    """The task, if it is one of those; what only looks like one of them is none."""
    wanted = _plain(task)
    for known in known_tasks():
        if known.language == language and wanted in known.tasks:
            return known
    return None


def declined(task: str, language: str) -> str | None:
    """Why it can't do a task; None if it can."""
    return None if find(task, language) is not None else _does_not_know()


def _does_not_know() -> str:
    listed = "; ".join(f"{known.name} ({known.language})" for known in known_tasks())
    return f"the scripted demo model knows only {listed}; for others a real model is needed"


def answer(request: Request) -> Say:
    """What it says: a program, tests, a correction; or that it does not know."""
    system = "\n".join(m.text for m in request.messages if m.role == "system")
    asked = "\n".join(m.text for m in request.messages if m.role == "user")
    named = re.search(r"(Python|TypeScript|JavaScript) programs", system)
    language, task = named[1].lower() if named else "", _task_in(asked)
    known = find(task, language)
    if known is None:
        return Say(refusal=_does_not_know())
    if "You write tests" in system:
        return Say(known.answers["Tests"], delay=_PAUSE, chunk=60)
    first = known.answers.get("First answer")
    if first is not None and "were run, and failed" not in asked:
        return Say(first, delay=_PAUSE, chunk=60)
    return Say(known.answers["Answer"], delay=_PAUSE, chunk=60)


def _task_in(asked: str) -> str:
    """The task in a question of the agent's, see prompts/."""
    within = _QUESTION.match(asked)
    return within[1] if within else asked.partition("\n\nYour last answer could not be used")[0]


async def choose_or_demo(gateway: Gateway, settings: CodeSettings) -> Chosen:
    """The model to use unless a run names one; where none is usable, this one."""
    chosen = await choose(gateway, settings.model)
    return chosen or Chosen(MODEL, NONE_USABLE)


def check_models(gateway: Gateway, *models: str | None) -> None:
    """Raise for a model that can't be had here."""
    register()
    for model in models:
        if model is not None:
            gateway.routes.candidates(model)


def check_demo(task: str, language: str, *models: str | None) -> None:
    """Raise if a task is to be done by the demo model and it does not know it."""
    why = declined(task, language) if MODEL in models else None
    if why is not None:
        raise FatalError(f"{MODEL} declined the task: {why}", hint=HOW_TO_GET_ONE)


def register() -> None:
    """Make it known as `scripted/demo`."""
    ScriptedModel("demo", answer).register()
