"""The repo agent's tools: what they do in a workspace, the step of each call, what the model sees.

A tool answers in words for the model, bounded; a mistake of the model's is an answer, too. Each
call is a step that names the state of the files it works on. If this process has no workspace in
that state, the step does nothing and says that the workspace is lost; `Bench`, which knows the
patches that led to the state from the steps before, has one made, and the step is taken again.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from holdfast.agents.command_output import both_ends
from holdfast.agents.repo.records import Base, Patch, Plan
from holdfast.agents.repo.workspace import (
    OWN,
    ROOT,
    Workspace,
    close_open,
    find_open,
    keep_open,
)
from holdfast.errors import FatalError, HoldfastError, SandboxFileError, SandboxGone
from holdfast.gateway.messages import TextPart
from holdfast.loop import AgentTool
from holdfast.loop.results import ToolOutput
from holdfast.runtime.context import step_context
from holdfast.runtime.definitions import step
from holdfast.sandbox import CommandResult, Ended

MOST_LINES = 400
_MOST_LINE = 2000
_MOST_FILE = 4 * 1024 * 1024
_MOST_LISTED = 400
_HIDDEN = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache"})
_SEARCH = f"{OWN}/search.py"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model is told of a tool."""

    text: str
    is_error: bool = False


class Wrong(Exception):
    """A mistake of the model's, in words for it."""


def place(path: str) -> str:
    """A path of the model's, in the sandbox; raises Wrong for one outside of the repo."""
    full = posixpath.normpath(posixpath.join(ROOT, path.strip()))
    if "\0" in path or (full != ROOT and not full.startswith(f"{ROOT}/")):
        raise Wrong(f"{path} is not in the repo")
    if posixpath.relpath(full, ROOT).split("/")[0] == ".git":
        raise Wrong("git's own folder is not yours to read or change; use `git` with run")
    return full


async def _read_file(workspace: Workspace, path: str, start: int, lines: int) -> Answer:
    """Lines of a file, with their numbers."""
    whole = (await _read(workspace, path)).splitlines()
    start, count = max(start, 1), min(max(lines, 1), MOST_LINES)
    if start > len(whole) and whole:
        raise Wrong(f"{path} has only {len(whole)} lines")
    shown = whole[start - 1 : start - 1 + count]
    text = "\n".join(f"{n:>5}  {line[:_MOST_LINE]}" for n, line in enumerate(shown, start))
    end = start - 1 + len(shown)
    if end < len(whole):
        text += f"\n… {len(whole) - end} more lines: read from {end + 1} on"
    return Answer(both_ends(text) if whole else f"{path} is empty")


async def _read(workspace: Workspace, path: str) -> str:
    try:
        raw = await workspace.sandbox.read_file(place(path), limit=_MOST_FILE)
    except SandboxFileError as error:
        raise Wrong(f"{path}: {error.message.rpartition(': ')[2]}") from error
    if b"\0" in raw[:8192]:
        raise Wrong(f"{path} is no text file")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Wrong(f"{path} is not in UTF-8; change it with a command, by run") from error


async def _list_files(workspace: Workspace, path: str, recursive: bool) -> Answer:
    """What lies in a folder."""
    try:
        found = await workspace.sandbox.list_files(place(path), recursive=recursive)
    except SandboxFileError as error:
        raise Wrong(f"{path}: {error.message.rpartition(': ')[2]}") from error
    shown = [entry for entry in found if not _HIDDEN & set(entry.path.split("/")[:-1])]
    shown = [entry for entry in shown if entry.path.split("/")[-1] not in _HIDDEN]
    lines = [f"{e.path}/" if e.type == "dir" else e.path for e in shown[:_MOST_LISTED]]
    if len(shown) > _MOST_LISTED:
        lines.append(f"… {len(shown) - _MOST_LISTED} more: list a folder below")
    return Answer("\n".join(lines) or "it is empty")


@cache
def _search_program() -> str:
    program = resources.files("holdfast.agents.repo") / "inside" / "search.py"
    return program.read_text(encoding="utf-8")


async def _search(workspace: Workspace, pattern: str, path: str, glob: str) -> Answer:
    """Lines that match a regular expression."""
    asked = {"pattern": pattern, "root": place(path), "glob": glob, "base": ROOT}
    await workspace.sandbox.write_files({_SEARCH: _search_program()})
    result = await workspace.sandbox.run(
        "python", _SEARCH, cwd=OWN, stdin=json.dumps(asked), timeout=30, max_output="1mb",
        env={"PYTHONPATH": ""},
    )  # fmt: skip
    if result.exit_code == 2:
        raise Wrong(result.stderr.strip() or "the pattern can't be used")
    if not result.ok:
        raise Wrong(f"the search did not end well ({result.ended}): make it narrower")
    return Answer(both_ends(result.stdout.rstrip("\n")) or "nothing matches")


async def _edit_file(workspace: Workspace, path: str, old: str, new: str, every: bool) -> Answer:
    """Replace a text that occurs exactly once, or every time it occurs."""
    if not old:
        raise Wrong("old is empty: to make a file, use write_file")
    if old == new:
        raise Wrong("old and new are the same")
    text = await _read(workspace, path)
    found = text.count(old)
    if found == 0 and "\r\n" in text and old.replace("\n", "\r\n") in text:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = text.count(old)
    if found == 0:
        raise Wrong(f"{path} does not hold that text: read it again, and copy it exactly")
    if found > 1 and not every:
        raise Wrong(f"that text is {found} times in {path}: give more of what is around it")
    await _write(workspace, path, text.replace(old, new))
    return Answer(f"replaced {found} time{'s' * (found > 1)} in {path}")


async def _write_file(workspace: Workspace, path: str, content: str) -> Answer:
    """Write a whole file."""
    await _write(workspace, path, content)
    return Answer(f"wrote {path}, {len(content.splitlines())} lines")


async def _write(workspace: Workspace, path: str, text: str) -> None:
    full = place(path)
    if full == ROOT:
        raise Wrong("that is the repo's folder, no file")
    mode = 0o644
    listed = await workspace.sandbox.shell(f'test -x "{_quoted(full)}"', timeout=10)
    if listed.ok:
        mode = 0o755
    try:
        await workspace.sandbox.write_files({full: text}, mode=mode)
    except SandboxFileError as error:
        raise Wrong(f"{path}: {error.message.rpartition(': ')[2]}") from error


def _quoted(path: str) -> str:
    return "".join(f"\\{c}" if c in '"\\$`' else c for c in path)


async def _run_command(workspace: Workspace, command: str, seconds: float) -> Answer:
    """Run a line in the shell, in the repo's folder."""
    result = await workspace.sandbox.shell(
        f"exec 2>&1\n{command}",
        cwd=ROOT,
        timeout=seconds,
        max_output="2mb",
        env={"CI": "true", "NO_COLOR": "1"},
    )
    said = both_ends(result.stdout.rstrip("\n"))
    return Answer(f"{said}\n[{_how(result, seconds)}]".lstrip("\n"), is_error=False)


def _how(result: CommandResult, seconds: float) -> str:
    match result.ended:
        case Ended.EXITED:
            return f"exit code {result.exit_code}"
        case Ended.TIMED_OUT:
            return f"stopped after {seconds:g} s"
        case Ended.OUT_OF_MEMORY:
            return "stopped: out of memory"
        case Ended.OUTPUT_LIMIT:
            return "stopped: it printed too much"
        case Ended.SIGNALLED:
            return f"killed by signal {result.signal}"
        case _:
            return "the sandbox ended; its files are restored from your last change"


# --- the steps: one for each use of a tool ---


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a tool: words for the model, and what it changed."""

    text: str = ""
    is_error: bool = False
    lost: bool = False
    """The workspace is gone, and nothing was done."""
    tree: str | None = None
    """The state of the files afterwards, if it is another."""
    patch: Patch | None = None
    """What leads from the state before to this one."""


@step(retries=2, timeout="10m")
async def open_workspace(base: Base, plan: Plan, patches: tuple[Patch, ...], tree: str) -> None:
    """Make the agent's workspace, in the state that is on record."""
    workspace = await Workspace.open(base, plan, patches, tree, seconds=plan.max_time + 600)
    await keep_open(step_context().run_id, workspace)


async def _on(tree: str, tool: Callable[[Workspace], Awaitable[Answer]]) -> Outcome:
    """Use a tool on the run's workspace in this state."""
    run_id = step_context().run_id
    workspace = find_open(run_id, tree)
    if workspace is None:
        return Outcome(lost=True)
    try:
        try:
            answer = await tool(workspace)
        except Wrong as wrong:
            answer = Answer(str(wrong), is_error=True)
        if not workspace.sandbox.running:
            return Outcome(answer.text, answer.is_error)
        changed = await workspace.changes()
    except SandboxGone as gone:
        await close_open(run_id)
        return Outcome(f"the sandbox ended: {gone.message}", is_error=True)
    except BaseException:
        await close_open(run_id)  # half-done: the next step starts from what is on record
        raise
    if changed is None:
        return Outcome(answer.text, answer.is_error)
    return Outcome(answer.text, answer.is_error, tree=changed[0], patch=changed[1])


async def _look(tree: str, tool: Callable[[Workspace], Awaitable[Answer]]) -> Outcome:
    """Use a tool that changes nothing."""
    workspace = find_open(step_context().run_id, tree)
    if workspace is None:
        return Outcome(lost=True)
    try:
        answer = await tool(workspace)
    except Wrong as wrong:
        return Outcome(str(wrong), is_error=True)
    except SandboxGone as gone:
        return Outcome(f"the sandbox ended: {gone.message}", is_error=True)
    return Outcome(answer.text, answer.is_error)


@step(retries=1, timeout="2m")
async def read_file(tree: str, path: str, start: int, lines: int) -> Outcome:
    return await _look(tree, lambda w: _read_file(w, path, start, lines))


@step(retries=1, timeout="2m")
async def list_files(tree: str, path: str, recursive: bool) -> Outcome:
    return await _look(tree, lambda w: _list_files(w, path, recursive))


@step(retries=1, timeout="2m")
async def search(tree: str, pattern: str, path: str, glob: str) -> Outcome:
    return await _look(tree, lambda w: _search(w, pattern, path, glob))


@step(retries=1, timeout="5m")
async def edit_file(tree: str, path: str, old: str, new: str, every: bool) -> Outcome:
    return await _on(tree, lambda w: _edit_file(w, path, old, new, every))


@step(retries=1, timeout="5m")
async def write_file(tree: str, path: str, content: str) -> Outcome:
    return await _on(tree, lambda w: _write_file(w, path, content))


@step(retries=1, timeout="30m")
async def run(tree: str, command: str, seconds: float) -> Outcome:
    return await _on(tree, lambda w: _run_command(w, command, seconds))


# --- the tools, as a workflow body has them ---

_MOST_LOST = 5
"""A workspace that is gone so often in a row is not made again."""


class Bench:
    """Where one try stands: base, patches, state; and the tools that change it."""

    def __init__(self, base: Base, plan: Plan) -> None:
        self.base, self.plan = base, plan
        self.tree = base.tree
        self.patches: tuple[Patch, ...] = ()
        self.finished: str | None = None
        """What the agent said when it was done."""
        self.broken: HoldfastError | None = None
        """Why there is no workspace, if none can be had; nothing the model could do about it."""

    async def open(self) -> None:
        """Have the workspace made."""
        await open_workspace(self.base, self.plan, self.patches, self.tree)

    async def use(self, tool: Callable[..., Awaitable[Outcome]], *given: Any) -> ToolOutput:
        """Take a tool's step, on the workspace as it should be."""
        for _ in range(_MOST_LOST):
            outcome = await tool(self.tree, *given)
            if not outcome.lost:
                return self.take(outcome)
            try:
                await self.open()
            except HoldfastError as error:
                return self._break(error)
        return self._break(FatalError(f"the workspace was lost {_MOST_LOST} times in a row"))

    def _break(self, error: HoldfastError) -> ToolOutput:
        self.broken = error
        words = f"the workspace can't be made anew: {error.message}"
        return ToolOutput((TextPart(words),), is_error=True, status="failed")

    def take(self, outcome: Outcome) -> ToolOutput:
        """Go on from what a step has changed; what the model is told of it."""
        if outcome.tree is not None and outcome.patch is not None:
            self.tree = outcome.tree
            self.patches = (*self.patches, outcome.patch)
        status = "failed" if outcome.is_error else "done"
        return ToolOutput((TextPart(outcome.text),), outcome.is_error, status)

    def tools(self) -> list[AgentTool]:
        """What the model may call."""
        functions = (
            self._read_file, self._list_files, self._search, self._edit_file, self._write_file,
            self._run, self._finish,
        )  # fmt: skip
        return [
            AgentTool(each, name=each.__name__[1:], idempotent=True, timeout=None, place="body")
            for each in functions
        ]

    async def _read_file(self, path: str, start: int = 1, lines: int = 200) -> ToolOutput:
        """Lines of a text file, with their numbers.

        Args:
            path: From the root of the repo.
            start: The first line.
            lines: How many, at most 400.
        """
        return await self.use(read_file, path, start, lines)

    async def _list_files(self, path: str = ".", recursive: bool = False) -> ToolOutput:
        """What lies in a folder; folders end with a slash.

        Args:
            path: From the root of the repo.
            recursive: Whether to list what lies below as well.
        """
        return await self.use(list_files, path, recursive)

    async def _search(self, pattern: str, path: str = ".", glob: str = "") -> ToolOutput:
        """Lines that match a regular expression, as `path:line: text`.

        Args:
            pattern: A regular expression as Python has them.
            path: A file or folder to search.
            glob: Only files of such names, as in `*.py`.
        """
        return await self.use(search, pattern, path, glob)

    async def _edit_file(
        self, path: str, old: str, new: str, replace_all: bool = False
    ) -> ToolOutput:
        """Replace a text in a file. `old` must occur exactly once, to the last space.

        Args:
            path: From the root of the repo.
            old: The text as it is now, without line numbers.
            new: What takes its place.
            replace_all: Replace it wherever it occurs.
        """
        return await self.use(edit_file, path, old, new, replace_all)

    async def _write_file(self, path: str, content: str) -> ToolOutput:
        """Write a whole file, a new one or over one that is there.

        Args:
            path: From the root of the repo.
            content: All of it.
        """
        return await self.use(write_file, path, content)

    async def _run(self, command: str, seconds: float | None = None) -> ToolOutput:
        """Run a command line in the shell, in the root of the repo. There is no network.

        Args:
            command: For sh, as in `python -m pytest -q tests/test_x.py`.
            seconds: The longest it may take.
        """
        most = self.plan.command_timeout
        limit = min(max(seconds or most, 1.0), max(most, self.plan.test_timeout))
        return await self.use(run, command, limit)

    async def _finish(self, summary: str) -> str:
        """Say that the task is done. The tests are run then, and you hear if they fail.

        Args:
            summary: What you changed and why, in a few sentences.
        """
        self.finished = summary
        return "Thank you. The tests are being run."
