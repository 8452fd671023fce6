"""A patch looked at before it is used: which files it touches, how large it is, what is wrong.

A patch comes out of a sandbox that ran a stranger's code. Before any of it is applied to a tree
of the user's, every path and mode in it is checked here; git checks them once more.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from holdfast.agents.repo.records import Patch

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
