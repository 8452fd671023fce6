"""The tasks of a batch: one JSON object a line, checked before any of them is begun.

    {"prompt": "Write is_palindrome", "language": "python"}
    {"id": "slugs", "repo": "./slugs", "task": "Make the tests pass"}

A line with `repo` is for the repo agent, any other for the code agent. The key of a task is its
`id`, or what the line says: the same file again means the same runs.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from holdfast.agents.code import evaluate_code
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.settings import load
from holdfast.agents.repo import repair_repo
from holdfast.agents.repo import sources as repo_sources
from holdfast.errors import CodecError, HoldfastError, UsageError
from holdfast.runtime.definitions import Workflow

_NAMES = {"repo": "source", "attempts": "max_attempts"}
"""What a line calls an argument, where the workflow has another name for it."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One line, as a run to be started."""

    line: int
    title: str
    key: str
    """Unlike those of all other lines of the file."""
    workflow: Workflow[..., Any]
    input: bytes
    """The workflow's arguments as JSON."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no task, and why."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


def read(
    lines: Iterable[str], defaults: Mapping[str, Any] | None = None
) -> tuple[list[BatchTask], list[BadLine]]:
    """The tasks of a file, and the lines that are none. Empty lines count but say nothing."""
    tasks: list[BatchTask] = []
    bad: list[BadLine] = []
    seen: Counter[str] = Counter()
    named: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            task = _task(number, text, dict(defaults or {}), seen, named)
        except CodecError as error:
            bad.append(BadLine(number, error.message.removeprefix("$.")))
        except HoldfastError as error:
            hint = f" ({error.hint})" if error.hint else ""
            bad.append(BadLine(number, f"{error.message}{hint}"))
        else:
            tasks.append(task)
    return tasks, bad


def _task(
    number: int, text: str, defaults: dict[str, Any], seen: Counter[str], named: dict[str, int]
) -> BatchTask:
    given = _object(text)
    id = given.pop("id", None)
    if id is not None and (not isinstance(id, str) or not id.strip()):
        raise UsageError("id should be a text")
    on_repo = "repo" in given
    workflow: Workflow[..., Any] = repair_repo if on_repo else evaluate_code
    wanted = "task" if on_repo else "prompt"
    known = _fields(workflow, on_repo)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise UsageError(f"there is no {name!r} in a task", hint=hint)
    words = given.get(wanted)
    if not isinstance(words, str) or not words.strip():
        raise UsageError(f"{wanted!r} is missing or empty")
    merged = {**{k: v for k, v in defaults.items() if k in known and v is not None}, **given}
    if "language" in merged:
        merged["language"] = language_named(str(merged["language"])).name
    if not on_repo:
        merged.setdefault("attempts", load().attempts)
    if on_repo:
        merged["repo"] = repo_sources.find(str(merged["repo"])).place
    renamed = _NAMES if not on_repo else {"repo": "source"}
    arguments = {renamed.get(name, name): value for name, value in merged.items()}
    args, kwargs = workflow.signature.decode_arguments(json.dumps(arguments).encode())
    input = workflow.signature.encode_arguments(args, kwargs)
    key = _key(number, id, workflow.name, input, seen, named)
    return BatchTask(number, words.strip().splitlines()[0], key, workflow, input)


def _key(
    number: int,
    id: str | None,
    workflow: str,
    input: bytes,
    seen: Counter[str],
    named: dict[str, int],
) -> str:
    if id is not None:
        if id in named:
            raise UsageError(f"the id {id!r} is that of line {named[id]}, too")
        named[id] = number
        return f"id:{id}"
    digest = hashlib.blake2b(workflow.encode() + b"\n" + input, digest_size=12).hexdigest()
    seen[digest] += 1
    return digest if seen[digest] == 1 else f"{digest}:{seen[digest]}"


def _fields(workflow: Workflow[..., Any], on_repo: bool) -> set[str]:
    parameters = set(inspect.signature(workflow.function).parameters)
    if on_repo:
        return parameters - {"source"} | {"repo"}
    return parameters - {"max_attempts"} | {"attempts"}


def _object(text: str) -> dict[str, Any]:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError("no JSON object", hint='such as {"prompt": "…"}')
    return cast("dict[str, Any]", data)
