"""A sandbox's files, from the host's side: every path is followed inside, by the agent."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import posixpath
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.errors import SandboxError, SandboxFileError
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.spec import inside

MOST_READ = 64 * 1024 * 1024
_MOST_ENTRIES = 200_000
_CHUNK = 512 * 1024


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry of a folder in a sandbox; links are told as links, not followed."""

    path: str
    type: str
    """`file`, `dir`, `link` or `other`."""
    size: int
    mode: int
    modified: float

    @property
    def modified_at(self) -> datetime:
        return datetime.fromtimestamp(self.modified, UTC)


async def _each(pieces: AsyncIterable[bytes] | Iterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece


class Files:
    """Reads and writes through one sandbox's channel; relative paths are below the workspace."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def write(self, files: Mapping[str, str | bytes], mode: int) -> None:
        for path, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            target = inside(path)
            for start in range(0, max(len(raw), 1), _CHUNK):
                await self._channel.request(
                    "write", raw[start : start + _CHUNK], path=target, append=start > 0, mode=mode
                )

    async def read(self, path: str, limit: int) -> bytes:
        _, data = await self._channel.collect("read", path=inside(path), limit=limit, most=limit)
        return data

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """The content in pieces, each asked for when the one before was taken."""
        offset, first = 0, None
        while True:
            answer, data = await self._channel.collect(
                "read_at", path=inside(path), offset=offset, limit=_CHUNK, most=_CHUNK
            )
            first = first or answer.get("file")
            if answer.get("file") != first:
                raise SandboxFileError(f"{path}: was replaced while it was read", path=path)
            if not data:
                return
            offset += len(data)
            yield data

    async def write_stream(
        self, path: str, pieces: AsyncIterable[bytes] | Iterable[bytes], mode: int
    ) -> int:
        """Write piece by piece beside the file, which is replaced once all is there."""
        target = inside(path)
        folder, name = posixpath.split(target)
        draft = posixpath.join(folder, f".{name[:200]}.{secrets.token_hex(4)}.part")
        size = 0
        try:
            await self._channel.request("write", path=draft, append=False, mode=mode | 0o200)
            async for piece in _each(pieces):
                for start in range(0, len(piece), _CHUNK):
                    part = bytes(piece[start : start + _CHUNK])
                    await self._channel.request("write", part, path=draft, append=True, mode=mode)
                size += len(piece)
            await self._channel.request("rename", path=draft, to=target)
        except BaseException:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self._channel.request("remove", path=draft))
            raise
        return size

    async def list(self, path: str, recursive: bool) -> list[FileInfo]:
        _, data = await self._channel.collect(
            "list", path=inside(path), recursive=recursive, limit=_MOST_ENTRIES, most=MOST_READ
        )
        entries = [FileInfo(**json.loads(line)) for line in data.splitlines()]
        return sorted(entries, key=lambda entry: entry.path)

    async def stat(self, path: str) -> FileInfo:
        answer = await self._channel.request("stat", path=inside(path))
        return FileInfo(**answer["entry"])

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except SandboxFileError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        return True

    async def rename(self, path: str, to: str) -> None:
        await self._channel.request("rename", path=inside(path), to=inside(to))

    async def mkdir(self, path: str) -> None:
        await self._channel.request("mkdir", path=inside(path))

    async def remove(self, path: str) -> None:
        await self._channel.request("remove", path=inside(path))
