"""A warm pool: sandboxes made ahead, of the kind last asked for, off the hot path.

Bounded in number; each is fresh, and used once. Only plain sandboxes are pooled: what differs
in limits or layers from what was asked lately is let go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine

from holdfast.ids import new_id
from holdfast.sandbox.base import Backend, Instance
from holdfast.sandbox.spec import Spec


class Pool:
    """Ready instances of one backend."""

    def __init__(self, backend: Backend, size: int) -> None:
        self._backend = backend
        self.size = size
        self._ready: deque[Instance] = deque()
        self._key: tuple[object, ...] | None = None
        self._filling: asyncio.Task[None] | None = None
        self._dropping: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, spec: Spec) -> Instance | None:
        """A ready instance of this kind, or None; from now on `refill` makes this kind."""
        if self.size <= 0:
            return None
        if spec.pool_key != self._key:
            self._key = spec.pool_key
            for instance in self._ready:
                self._spawn(instance.destroy())
            self._ready.clear()
        return self._ready.popleft() if self._ready else None

    def refill(self, spec: Spec) -> None:
        """Make more in the background, as many as are lacking."""
        if self.size <= 0:
            return
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill_later(spec))

    async def _fill_later(self, spec: Spec) -> None:
        await asyncio.sleep(self._backend.refill_after)
        await self._fill(spec)

    async def _fill(self, spec: Spec) -> None:
        key = spec.pool_key
        while len(self._ready) < self.size and self._key == key:
            instance = await self._backend.create(new_id("sbx"), spec)
            if self._key == key and len(self._ready) < self.size:
                self._ready.append(instance)
            else:
                await instance.destroy()

    async def warm(self, spec: Spec) -> None:
        """Fill the pool for this kind now, and wait for it."""
        self._key = spec.pool_key
        await self._fill(spec)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def drain(self) -> None:
        """Remove everything that is ready, and stop refilling."""
        if self._filling is not None and not self._filling.done():
            self._filling.cancel()
            await asyncio.wait([self._filling])
        self._key = None
        while self._ready:
            await self._ready.popleft().destroy()
        if self._dropping:
            await asyncio.wait(self._dropping)
