"""What a sandbox starts with: a folder or a git repository, copied in.

Links are copied as links, never followed, and everything is unpacked inside, by the agent: a
name or a link that tries to lead elsewhere leads elsewhere in the sandbox. Repositories are
fetched on the host, with the host's credentials, which stay there.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxFileError, SourceError
from holdfast.sandbox.channel import Channel

_BATCH = 512 * 1024
_MOST_ENTRIES = 500
_GIT_URL = re.compile(r"(?:https?|git|ssh|file)://|[\w.-]+@[\w.-]+:|.*\.git(?:#.*)?$")
_GIT_LIMIT = 300.0
_PROTOCOLS = "file:git:http:https:ssh"  # not ext::, fd:: and others, which run programs
_SAFE_GIT = (
    "protocol.ext.allow=never",
    "core.hooksPath=/dev/null",
    "submodule.recurse=false",
    "filter.lfs.smudge=",
    "filter.lfs.process=",
    "filter.lfs.required=false",
)


def is_git(source: str) -> bool:
    """Whether a source is a repository's address; `#` adds a branch, tag or commit."""
    return bool(_GIT_URL.match(source)) and not Path(source).is_dir()


async def copy_in(channel: Channel, source: str, target: str) -> None:
    """Copy a folder or repository to `target` in the sandbox."""
    if is_git(source):
        with tempfile.TemporaryDirectory(prefix="holdfast-git-") as folder:
            await _fetch(source, folder)
            await _copy(channel, Path(folder), target)
        return
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise SourceError(
            f"{source!r} is no folder, repository or snapshot",
            hint="give a folder's path, a git address or a snapshot's id",
        )
    await _copy(channel, folder, target)


async def _copy(channel: Channel, folder: Path, target: str) -> None:
    batches = _batches(folder)
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        entries, payload = batch
        try:
            await channel.request("unpack", payload, path=target, entries=entries)
        except SandboxFileError as error:
            raise SourceError(f"{folder} could not be copied in: {error.message}") from error


def _batches(root: Path) -> Iterator[tuple[list[dict[str, Any]], bytes]]:
    """A tree's entries and contents, in pieces of bounded size."""
    entries: list[dict[str, Any]] = []
    payload = bytearray()
    for name, info in _walk(root):
        path = root / name
        if stat.S_ISDIR(info.st_mode):
            entries.append({"path": name, "type": "dir"})
        elif stat.S_ISLNK(info.st_mode):
            entries.append({"path": name, "type": "link", "target": os.readlink(path)})
        elif stat.S_ISREG(info.st_mode):
            for number, piece in enumerate(_pieces(path)):
                entry = {"path": name, "type": "file", "mode": stat.S_IMODE(info.st_mode) & 0o777}
                entries.append({**entry, "size": len(piece), "append": number > 0})
                payload += piece
                if len(payload) >= _BATCH:
                    yield entries, bytes(payload)
                    entries, payload = [], bytearray()
        if len(entries) >= _MOST_ENTRIES:
            yield entries, bytes(payload)
            entries, payload = [], bytearray()
    if entries:
        yield entries, bytes(payload)


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as found:
            for entry in sorted(found, key=lambda e: e.name):
                name = f"{folder}/{entry.name}" if folder else entry.name
                yield name, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)


def _pieces(path: Path) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb", buffering=0) as file:
        yield file.read(_BATCH)
        while piece := file.read(_BATCH):
            yield piece


async def _fetch(source: str, folder: str) -> None:
    """Fetch one state of a repository into a folder, without running anything of it."""
    url, _, ref = source.partition("#")
    if url.startswith("-") or ref.startswith("-"):
        raise SourceError(f"{source!r} is no git address")
    await _git(folder, "init", "--quiet")
    await _git(folder, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, ref or "HEAD")
    await _git(folder, "checkout", "--quiet", "FETCH_HEAD")


async def _git(folder: str, *words: str) -> None:
    settings = [word for setting in _SAFE_GIT for word in ("-c", setting)]
    process = await asyncio.create_subprocess_exec(
        "git",
        *settings,
        *words,
        cwd=folder,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _PROTOCOLS},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_GIT_LIMIT):
            _, told = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        what = told.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise SourceError(f"git {words[0]} failed: {what[-1]}")
