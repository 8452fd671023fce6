"""Pairs: a task, a program with a subtle mistake, the right one, and tests that tell them apart.

Each is a folder of `pairs/`. `error.txt` holds a line that really appears when the tests are run
on the first program, and in none of the other files: `test_pairs.py` sees to both. Whoever gives
the right program only if a prompt carries that line gives it to nobody who did not run the tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.code.healing import wrapping
from holdfast.gateway.messages import Request
from holdfast.gateway.scripted import Say

FOLDER = Path(__file__).parent / "pairs"
_SUFFIXES = {".py": "python", ".ts": "typescript", ".js": "javascript"}


@dataclass(frozen=True)
class Pair:
    """One of them; `number` decides how its replies are wrapped."""

    name: str
    number: int
    language: str
    task: str
    first: str
    fixed: str
    tests: str
    error: str

    @property
    def code_file(self) -> str:
        return f"solution{self.suffix}"

    @property
    def test_file(self) -> str:
        return "test_solution.py" if self.language == "python" else f"solution.test{self.suffix}"

    @property
    def suffix(self) -> str:
        return next(suffix for suffix, name in _SUFFIXES.items() if name == self.language)

    def reply(self, what: str) -> str:
        """The text of one of its files, wrapped as models wrap code."""
        code = {"first": self.first, "tests": self.tests, "fixed": self.fixed}[what]
        file = self.test_file if what == "tests" else self.code_file
        offset = {"first": 0, "tests": 4, "fixed": 9}[what]
        said = wrapping.wrap(code, self.language, file, self.number + offset)
        return f"WRONG: code. It fails a test.\n\n{said}" if what == "fixed" else said


@cache
def pairs(*languages: str) -> tuple[Pair, ...]:
    """All of them, or those in these languages."""
    folders = sorted(folder for folder in FOLDER.iterdir() if folder.is_dir())
    found = [_load(folder, number) for number, folder in enumerate(folders)]
    return tuple(pair for pair in found if not languages or pair.language in languages)


def named(name: str) -> Pair:
    return next(pair for pair in pairs() if pair.name == name)


def _load(folder: Path, number: int) -> Pair:
    suffix = next(folder.glob("first.*")).suffix
    read = {file.stem: file.read_text() for file in folder.iterdir() if file.is_file()}
    return Pair(
        folder.name,
        number,
        _SUFFIXES[suffix],
        read["task"].strip(),
        read["first"],
        read["fixed"],
        read["tests"],
        read["error"].strip(),
    )


# --- a model that knows them ---


def asked_for(request: Request) -> str:
    """What a request of the agent's asks for: `code`, `fix`, `tests` or `tests fix`."""
    system = "\n".join(m.text for m in request.messages if m.role == "system")
    said = user_text(request)
    if "You write tests" in system:
        return "tests fix" if "There is something wrong with them" in said else "tests"
    return "fix" if "were run, and failed" in said else "code"


def user_text(request: Request) -> str:
    return "\n".join(m.text for m in request.messages if m.role == "user")


def error_shown(request: Request) -> str:
    """The part of a question for a correction that says what went wrong."""
    match = re.search(r"were run, and failed:\n\n```\n(.*?)\n```", user_text(request), re.DOTALL)
    return match[1] if match else ""


def heals(request: Request) -> Say:
    """Answers with a pair: the right program only to whoever shows the failing test's error."""
    said = user_text(request)
    pair = next(pair for pair in pairs() if pair.task in said)
    match asked_for(request):
        case "tests":
            return Say(pair.reply("tests"))
        case "fix" if pair.error in error_shown(request):
            return Say(pair.reply("fixed"))
        case _:
            return Say(pair.reply("first"))


def never_heals(request: Request) -> Say:
    """Answers with the first program, whatever it is shown; in other words each time."""
    said = user_text(request)
    pair = next(pair for pair in pairs() if pair.task in said)
    if asked_for(request) == "tests":
        return Say(pair.reply("tests"))
    return Say(pair.reply("first"))
