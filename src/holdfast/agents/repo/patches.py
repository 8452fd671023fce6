"""A patch: which files it touches, how large it is, what is wrong with it; and applying it.

A patch comes out of a sandbox that ran a stranger's code. Before any of it is applied to a tree
of the user's, every path and mode in it is checked here; git checks them once more.

The user's repo may be a stranger's, so its settings are not trusted with the user's rights: no
hook, filter, monitor or helper of its own is run. Patches are applied by a git with a folder and
settings of our own, which never looks into the repo's `.git`; for a branch, the repo's objects
and names are used, and nothing else of it.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.agents.repo.records import Patch
from holdfast.errors import Refused, UsageError

_HEADER = re.compile(r"^diff --git (.*)$")
_MODE = re.compile(r"^(?:new file mode|new mode|deleted file mode|old mode) (\d{6})$")
_INDEX = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+(?: (\d{6}))?$")
_SENSITIVE = re.compile(
    r"(^|/)(\.gitattributes|\.gitmodules|\.envrc|\.npmrc|\.pre-commit-config\.yaml)$"
    r"|^\.github/|^\.gitlab-ci\.yml$|^\.circleci/|^\.vscode/|^\.idea/|^\.devcontainer/"
)
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file."""

    path: str
    mode: str = "100644"
    added: int = 0
    removed: int = 0
    target: str | None = None
    """Where a link leads, if it is one that the patch makes."""
    new: bool = False
    deleted: bool = False
    binary: bool = False


def changes(patch: Patch) -> tuple[FileChange, ...]:
    """The files a patch of ours touches, in order. Raises ValueError for what is no such patch."""
    found: list[FileChange] = []
    lines = patch.text.split("\n")
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        if header is None:
            if lines[at]:
                raise ValueError(f"line {at + 1} is outside of any file")
            at += 1
            continue
        change, at = _file(lines, at + 1, _path(header[1]))
        found.append(change)
    return tuple(found)


def _file(lines: list[str], at: int, path: str) -> tuple[FileChange, int]:
    mode, new, deleted, binary = "100644", False, False, False
    added = removed = 0
    content: list[str] = []
    while at < len(lines) and not lines[at].startswith(("@@ ", "diff --git ")):
        line = lines[at]
        if (found := _MODE.match(line)) and not line.startswith("old"):
            mode = found[1]
        elif found := _INDEX.match(line):
            mode = found[1] or mode
        new, deleted = new or line.startswith("new file"), deleted or line.startswith("deleted f")
        for sign in ("--- ", "+++ "):
            if line.startswith(sign):
                _must_match(line[4:], path)
        if line.startswith(("rename ", "copy ")):
            raise ValueError(f"{path}: renames are not written by us")
        binary = binary or line.startswith("GIT binary patch")
        at += 1
    while at < len(lines) and lines[at].startswith("@@ "):
        at, plus, minus, text = _hunk(lines, at)
        added, removed = added + plus, removed + minus
        content += text
    target = "\n".join(content) if mode == "120000" and not deleted else None
    change = FileChange(path, mode, added, removed, target, new, deleted, binary)
    return change, at


def _hunk(lines: list[str], at: int) -> tuple[int, int, int, list[str]]:
    sizes = re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", lines[at])
    if sizes is None:
        raise ValueError(f"line {at + 1} is no hunk")
    old, new = int(sizes[1] or 1), int(sizes[2] or 1)
    added = removed = 0
    content: list[str] = []
    at += 1
    while old > 0 or new > 0:
        sign, text = lines[at][:1], lines[at][1:]
        if sign == "+":
            new, added = new - 1, added + 1
            content.append(text)
        elif sign == "-":
            old, removed = old - 1, removed + 1
        elif sign in (" ", ""):
            old, new = old - 1, new - 1
        elif sign != "\\":
            raise ValueError(f"line {at + 1} belongs to no hunk")
        at += 1
    while at < len(lines) and lines[at].startswith("\\"):
        at += 1
    return at, added, removed, content


def _path(header: str) -> str:
    """The path of `a/x b/x`; both are the same, since we write no renames."""
    if header.startswith('"'):
        first = re.match(r'"((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$', header)
        if first is None:
            raise ValueError(f"{header!r} names no file")
        one, other = _unquoted(first[1]), _unquoted(first[2])
    else:
        half = len(header) // 2
        one, other = header[:half], header[half + 1 :]
    if not one.startswith("a/") or not other.startswith("b/") or one[2:] != other[2:]:
        raise ValueError(f"{header!r} names no one file")
    return one[2:]


def _must_match(given: str, path: str) -> None:
    name = given.rstrip("\t\r")
    name = _unquoted(name[1:-1]) if name.startswith('"') else name
    if name != "/dev/null" and name[2:] != path:
        raise ValueError(f"{path} and {name} in one change")


def _unquoted(text: str) -> str:
    """A name as git quotes it, with octal bytes."""
    plain = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
    raw = bytearray()
    for match in re.finditer(r"\\([0-7]{3})|\\(.)|([^\\])", text):
        octal, escape, char = match.groups()
        if octal:
            raw.append(int(octal, 8) & 0xFF)
        else:
            raw += (plain.get(escape, escape) if escape else char).encode()
    return raw.decode("utf-8", "surrogateescape")


def faults(patch: Patch) -> tuple[str, ...]:
    """Why a patch must not be applied to anybody's tree; empty if it may be."""
    try:
        found = changes(patch)
    except (ValueError, IndexError) as error:
        return (f"it is no patch as we write them: {error}",)
    links = {change.path for change in found if change.target is not None}
    told: list[str] = []
    for change in found:
        why = _fault(change, links)
        if why is not None:
            told.append(f"{change.path}: {why}")
    return tuple(told)


def _fault(change: FileChange, links: set[str]) -> str | None:
    path = change.path
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or ".." in parts or "" in parts or "." in parts:
        return "a path that leads out of the tree"
    if any(_is_git(part) for part in parts):
        return "a path into git's own folder"
    if change.mode == "160000":
        return "a submodule"
    if change.mode not in ("100644", "100755", "120000"):
        return f"no file of a kind that is taken ({change.mode})"
    if any("/".join(parts[:depth]) in links for depth in range(1, len(parts))):
        return "a path through a link of the same patch"
    if change.target is not None and _leads_out(path, change.target):
        return f"a link that leads out of the tree, to {change.target}"
    if change.mode == "120000" and change.binary and not change.deleted:
        return "a link whose target can't be read"
    return None


def _is_git(part: str) -> bool:
    """Whether some file system takes a name for `.git`."""
    plain = _IGNORABLE.sub("", part).lower().rstrip(" .")
    plain = plain.partition(":")[0]
    return plain in (".git", "git~1")


def _leads_out(path: str, target: str) -> bool:
    if target.startswith("/") or "\0" in target:
        return True
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return reached == ".." or reached.startswith("../") or _is_git(reached.split("/")[0])


def sensitive(patch: Patch) -> tuple[str, ...]:
    """Files that do something by being there: for the user to look at twice."""
    return tuple(c.path for c in changes(patch) if _SENSITIVE.search(c.path))


# --- putting a patch into the user's own repo ---


_LIMIT = 120.0
_BARRED = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "submodule.recurse=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.denyCurrentBranch=refuse",
)
_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "false",
}
_BRANCH = re.compile(r"(?!-)(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[\w./+@-]+(?<![./])")


async def apply(folder: Path, patch: Patch) -> None:
    """Change the user's files by the patch, all of them or none; raises Refused."""
    _check(patch)
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as own:
        await _git({}, "init", "--quiet", "--bare", own)
        env = {"GIT_DIR": own, "GIT_WORK_TREE": str(folder)}
        for words in (("apply", "--check"), ("apply",)):
            await _applied(
                folder, env, (*words, "--whitespace=nowarn", "-"), patch,
                hint="your files have changed since: the patch is kept, for you to merge by hand",
            )  # fmt: skip


async def commit(folder: Path, name: str, patch: Patch, message: str, parent: str) -> str:
    """Commit the patch on a new branch, without touching what is checked out; the commit's id."""
    _check(patch)
    if not _BRANCH.fullmatch(name) or any(part.startswith(".") for part in name.split("/")):
        raise UsageError(f"{name!r} is no name for a branch")
    repo = folder / ".git"
    objects = (await _in(repo, "rev-parse", "--git-path", "objects")).strip()
    objects = str((folder / objects).resolve())
    ref = f"refs/heads/{name}"
    who = await _author(repo)
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as own:
        await _git({}, "init", "--quiet", "--bare", own)
        env = {"GIT_DIR": own, "GIT_OBJECT_DIRECTORY": objects, **who}
        await _git(env, "read-tree", parent)
        await _applied(
            Path(own), env, ("apply", "--cached", "--whitespace=nowarn", "-"), patch,
            hint="it builds on changes of yours that are not committed: commit them first, "
            "or use --apply",
        )  # fmt: skip
        tree = (await _git(env, "write-tree")).strip()
        made = await _git(env, "commit-tree", tree, "-p", parent, stdin=message.encode())
    commit = made.strip()
    try:
        await _in(repo, "update-ref", "--create-reflog", ref, commit, "0" * len(commit))
    except Refused as error:
        raise Refused(
            f"the branch {name} was not made: {error.message}",
            hint="choose another name with --branch, if there is one of this name",
        ) from error
    return commit


def _check(patch: Patch) -> None:
    if not patch.text:
        raise Refused("the patch is empty: there is nothing to apply")
    wrong = faults(patch)
    if wrong:
        raise Refused(f"the patch is unfit to be applied: {'; '.join(wrong[:5])}")


async def _author(repo: Path) -> dict[str, str]:
    """Who commits: as git is set up for this user, read without running anything."""
    found = {"name": "Holdfast", "email": "holdfast@localhost"}
    trusted = {"GIT_CONFIG_NOSYSTEM": "0", "GIT_CONFIG_GLOBAL": None}
    for key in found:
        value = await _run({"GIT_DIR": str(repo), **trusted}, "config", "--get", f"user.{key}")
        if value[0] == 0 and value[1].strip():
            found[key] = value[1].strip()
    return {
        f"GIT_{role}_{key.upper()}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in found.items()
    }


async def _applied(
    folder: Path, env: Mapping[str, str], words: tuple[str, ...], patch: Patch, hint: str
) -> None:
    code, _, said = await _run(env, *words, cwd=folder, stdin=patch.raw)
    if code:
        lines = [line.removeprefix("error: ") for line in said.strip().splitlines()]
        told = "; ".join(lines[:3]) or "git gave no reason"
        raise Refused(f"the patch does not apply: {told}", hint=hint)


async def _in(repo: Path, *words: str) -> str:
    return await _git({"GIT_DIR": str(repo)}, *words, cwd=repo.parent)


async def _git(
    env: Mapping[str, str], *words: str, cwd: Path | None = None, stdin: bytes = b""
) -> str:
    code, out, said = await _run(env, *words, cwd=cwd, stdin=stdin)
    if code:
        told = said.strip().splitlines()[-1:] or ["git gave no reason"]
        raise Refused(f"git {words[0]} failed: {told[0]}")
    return out


async def _run(
    env: Mapping[str, str | None], *words: str, cwd: Path | None = None, stdin: bytes = b""
) -> tuple[int, str, str]:
    settings = [word for setting in _BARRED for word in ("-c", setting)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    merged = {**inherited, **_ENV, **env}
    process = await asyncio.create_subprocess_exec(
        "git",
        *settings,
        *words,
        cwd=cwd,
        env={k: v for k, v in merged.items() if v is not None},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_LIMIT):
            out, said = await process.communicate(stdin)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    code = process.returncode
    assert code is not None
    return code, out.decode("utf-8", "replace"), said.decode("utf-8", "replace")
