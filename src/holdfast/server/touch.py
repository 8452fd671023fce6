"""Touches: telling readers of the live feed of what changed outside the log.

A model call that ends in the middle of a step, a command, a sandbox: none is an event. One task
looks at the store's changes, once for everybody and only while somebody asked for it, and wakes
those whose run was touched. A touch has no place in the log and is no record: it says that
looking again is worth it. Several that come together are one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.store.sqlite.changes import NAMES, ChangeDetector, Changes

log = logging.getLogger("holdfast")

PAUSE_SECONDS = 0.03
"""Between two looks: what is left of a tenth of a second is for the page."""
AFTER_ERROR_SECONDS = 1.0
SETTLE_SECONDS = 2.0
"""Records of sandboxes are written a moment after the fact; longer than this is another matter."""


class Watch:
    """What one reader wants to hear of, and has not heard yet."""

    def __init__(self, run_id: str | None, kinds: Sequence[str], signal: asyncio.Event) -> None:
        self.run_id = run_id
        self.kinds = frozenset(kinds)
        self._signal = signal
        self._waiting: set[str] = set()

    def tell(self, kinds: set[str]) -> None:
        """Of these kinds something was touched."""
        if wanted := kinds & self.kinds:
            self._waiting |= wanted
            self._signal.set()

    def take(self) -> list[str]:
        """The kinds that were touched since this was asked."""
        waiting, self._waiting = self._waiting, set()
        return [name for name in NAMES if name in waiting]


class Touches:
    """See the module's text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pulse: ChangeDetector | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._looking = asyncio.Lock()
        self._watches: set[Watch] = set()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, watch: Watch, mark: str | None) -> None:
        """Tell a reader from now on; at once, if `mark` is of another state than there is now."""
        await self._look()  # first: what was before is none of its business
        self._watches.add(watch)
        assert self._pulse is not None and self._pulse.state is not None
        if mark is not None and mark != self._pulse.state.mark:
            watch.tell(set(watch.kinds))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    def leave(self, watch: Watch) -> None:
        """Tell a reader nothing more."""
        self._watches.discard(watch)

    async def settled(self, run_id: str) -> None:
        """Wait until what a run did is on record as ended, within reason."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while await self._is_open(run_id):  # noqa: ASYNC110 - the store tells nobody
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            return

    async def _is_open(self, run_id: str) -> bool:
        await self._look()
        assert self._pulse is not None and self._pulse.state is not None
        return self._pulse.state.has_open(run_id)

    async def _work(self) -> None:
        while self._watches:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                await self._look()
            except StoreError as error:
                log.error("the store's changes can't be read, trying again: %s", error)
                await asyncio.sleep(AFTER_ERROR_SECONDS)

    async def _look(self) -> None:
        async with self._looking:
            if self._pulse is None or self._thread is None:
                self._pulse = ChangeDetector(self._path)
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-changes")
            if not self._pulse.has_changed():
                return
            loop = asyncio.get_running_loop()
            touched = await loop.run_in_executor(self._thread, self._pulse.look)
            if touched:
                self._tell(touched)

    def _tell(self, touched: Changes) -> None:
        for watch in self._watches:
            run_id = watch.run_id
            watch.tell({k for k, runs in touched.items() if run_id is None or run_id in runs})

    async def close(self) -> None:
        """End the task, and let go of the file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._thread is not None:
            await asyncio.to_thread(self._thread.shutdown)
        if self._pulse is not None:
            self._pulse.close()
