"""Which repo is meant: a folder of this machine or a git address, told apart and made plain.

Nothing of the repo is read here but whether `.git` is there. Folders are copied into a sandbox
as they are, `.git` included; addresses are fetched by the sandbox layer into a repository of
its own. No git runs in the user's folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from holdfast.errors import UsageError
from holdfast.sandbox.sources import is_git

_HELPER = re.compile(r"[\w+.-]+::")
"""An address for a program of git's, `ext::…`: it could run anything."""


@dataclass(frozen=True, slots=True)
class Source:
    """A repo to work on."""

    place: str
    """The folder's path, or the address."""
    folder: Path | None
    """The user's tree, if it is one of this machine."""

    @property
    def label(self) -> str:
        """For people: an address without user and password."""
        return self.place if self.folder is not None else without_password(self.place)


def find(given: str) -> Source:
    """The repo that is meant; raises UsageError for what is none."""
    if not given.strip() or given.startswith("-"):
        raise UsageError(f"{given!r} is no repo", hint="give a folder or a git address")
    folder = Path(given).expanduser()
    if folder.is_dir():
        root = _root(folder.resolve())
        if _is_bare(root):
            return Source(f"file://{root}", None)
        return Source(str(root), root)
    if is_git(given) and not _HELPER.match(given):
        return Source(given, None)
    raise UsageError(
        f"{given!r} is no folder here, and no git address",
        hint="such as ./project or https://host/owner/name.git",
    )


def _root(folder: Path) -> Path:
    """The work tree a folder belongs to; the folder itself if it belongs to none."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            return each
    return folder


def _is_bare(folder: Path) -> bool:
    parts = ("HEAD", "objects", "refs")
    return not (folder / ".git").exists() and all((folder / part).exists() for part in parts)


def without_password(address: str) -> str:
    """A git address that may be shown and kept."""
    parts = urlsplit(address)
    if parts.scheme and "@" in parts.netloc:
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address


def branch_name(task: str) -> str:
    """A branch's name from the words of a task: `holdfast/fix-the-parser`."""
    words = re.findall(r"[a-z0-9]+", task.lower())
    name = ""
    for word in words:
        if len(name) + len(word) > 40:
            break
        name = f"{name}-{word}" if name else word
    return f"holdfast/{name or 'repair'}"
