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

from holdfast.gateway import Say, ScriptedModel
from holdfast.gateway.request import Request

MODEL = "scripted/demo"
WHAT_IT_IS = "the scripted demo model, no AI: it knows a few tasks by heart"
HOW_TO_GET_ONE = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key, start Ollama or llama.cpp "
    "on this machine, or name a model with --model (`holdfast models list` shows what is usable)"
)
_SECTION = re.compile(r"^## (.+?)$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAUSE = 0.02  # seconds before each piece of an answer, so that there is something to see


@dataclass(frozen=True, slots=True)
class Known:
    """A task it knows."""

    name: str
    words: frozenset[str]
    """A task that has one of these is this one."""
    language: str
    answers: dict[str, str]
    """By section: `First answer` (with a mistake, if there is one), `Answer`, `Tests`."""


@cache
def known_tasks() -> tuple[Known, ...]:
    """The tasks it knows."""
    folder = resources.files("holdfast.agents.code") / "demo_tasks"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".md")), key=lambda f: f.name)
    return tuple(_read(f.name.removesuffix(".md"), f.read_text(encoding="utf-8")) for f in files)


def _read(name: str, text: str) -> Known:
    _, facts, *_ = text.split("\n", 2)
    words, _, language = facts.partition(" in ")
    return Known(
        name,
        frozenset(words.removeprefix("Known by ").split(", ")),
        language.strip().lower(),
        {name: body.strip() for name, body in _SECTION.findall(text)},
    )


def find(task: str, language: str) -> Known | None:
    """The task that is meant, if it is one of those."""
    words = set(re.findall(r"[a-z]+", task.lower().replace("_", "")))
    for known in known_tasks():
        if known.language == language and words & known.words:
            return known
    return None


def answer(request: Request) -> Say:
    """What it says: a program, tests, a correction; or that it does not know."""
    system = "\n".join(m.text for m in request.messages if m.role == "system")
    asked = "\n".join(m.text for m in request.messages if m.role == "user")
    named = re.search(r"(Python|TypeScript|JavaScript) programs", system)
    known = find(asked, named[1].lower()) if named else None
    if known is None:
        return Say(refusal=_does_not_know())
    if "You write tests" in system:
        return Say(known.answers["Tests"], delay=_PAUSE, chunk=60)
    first = known.answers.get("First answer")
    if first is not None and "were run, and failed" not in asked:
        return Say(first, delay=_PAUSE, chunk=60)
    return Say(known.answers["Answer"], delay=_PAUSE, chunk=60)


def _does_not_know() -> str:
    names = ", ".join(f"{known.name} ({known.language})" for known in known_tasks())
    return f"the scripted demo model knows only {names}; for others a real model is needed"


def register() -> None:
    """Make it known as `scripted/demo`."""
    ScriptedModel("demo", answer).register()
