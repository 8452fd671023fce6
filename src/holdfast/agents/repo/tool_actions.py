"""What the agent's tools do in a workspace: read, list, search, edit, write, run.

Each answers in words for the model, bounded; a mistake of the model's is an answer, too. Nothing
here is durable: the steps around it are.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from functools import cache
from importlib import resources

from holdfast.agents.repo.excerpts import both_ends
from holdfast.agents.repo.workspace import OWN, ROOT, Workspace
from holdfast.errors import SandboxFileError
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


async def read_file(workspace: Workspace, path: str, start: int, lines: int) -> Answer:
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


async def list_files(workspace: Workspace, path: str, recursive: bool) -> Answer:
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


async def search(workspace: Workspace, pattern: str, path: str, glob: str) -> Answer:
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


async def edit_file(workspace: Workspace, path: str, old: str, new: str, every: bool) -> Answer:
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


async def write_file(workspace: Workspace, path: str, content: str) -> Answer:
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


async def run(workspace: Workspace, command: str, seconds: float) -> Answer:
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
