"""Watching a folder of a sandbox: an iteration over what changes in it.

    async with await sandbox.watch("src") as changes:
        async for change in changes:
            print(change.type, change.path)

No more is told than is taken: who is slow gets several changes of a file as one, and where that is
not enough a change of type `lost`, which means that one should look at the folder again.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, cast, get_args

from holdfast.errors import SandboxError, SandboxGone
from holdfast.sandbox.channel import Channel, file_error
from holdfast.sandbox.inside.frames import Header

ChangeType = Literal["created", "modified", "attributes", "removed", "renamed", "lost"]
_TYPES = frozenset(get_args(ChangeType))


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a file or folder."""

    type: ChangeType
    path: str
    """Relative to the folder that is watched; `.` is that folder itself."""
    to: str | None = None
    """Where it is now, if it was renamed."""


class Watch:
    """The changes of one folder, as they come. `close` it, or use it in `async with`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._key = -1
        self._arrived: deque[Change] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._failure: str | None = None
        self._begun: asyncio.Future[Header] = asyncio.get_running_loop().create_future()

    @classmethod
    async def begin(cls, channel: Channel, path: str, *, recursive: bool) -> Watch:
        """Watch from now on; raises SandboxFileError where there is no such folder."""
        watch = cls(channel)
        header = {"path": path, "recursive": recursive}
        await channel.post("watch", header, b"", watch._receive, numbered=watch._take_number)
        told = await watch._begun
        if told["ev"] == "watching":
            return watch
        channel.drop(watch._key)
        if told["ev"] == "gone":
            raise SandboxGone(channel.error or "the sandbox is gone")
        raise file_error(told)

    def _take_number(self, key: int) -> None:
        self._key = key

    def _receive(self, header: Header, payload: bytes) -> None:
        if not self._begun.done():
            self._begun.set_result(header)
        elif header["ev"] == "changes" and not self._over:
            if self._arrived:
                self._fail("the sandbox told more than it was asked for")
                return
            self._take(bool(header.get("lost")), payload)
        else:
            self._over = True
        self._news.set()

    def _take(self, lost: bool, payload: bytes) -> None:
        try:
            for line in payload.splitlines():
                what, path, to = json.loads(line)
                if what not in _TYPES:
                    raise ValueError(what)
                target = None if to is None else str(to)
                self._arrived.append(Change(cast(ChangeType, what), str(path), target))
        except (ValueError, TypeError):
            self._fail("the sandbox told of changes that are none")
            return
        if lost:
            self._arrived.append(Change("lost", "."))

    def _fail(self, why: str) -> None:
        self._failure = why
        self.close()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        while not self._arrived:
            if self._failure is not None:
                raise SandboxError(self._failure)
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        change = self._arrived.popleft()
        if not self._arrived and not self._over:
            self._channel.tell("watched", flow=self._key)
        return change

    def close(self) -> None:
        """Watch no more."""
        if not self._over:
            self._over = True
            self._channel.drop(self._key)
            self._channel.tell("hang_up", flow=self._key)
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
