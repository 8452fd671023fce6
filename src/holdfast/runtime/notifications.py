"""Waiting for changes in the store: the end of a run, new events, new pieces of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast.records import Event
from holdfast.store.base import Change, Store

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

LOG_PAGE = 1000
POLL_SECONDS = 1.0
"""A wake-up from another process can get lost; nobody waits longer than this for it."""


class Watchers:
    """Wakes those who wait when something they may care about has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[_Signal]] = {}
        self._anything: set[_Signal] = set()
        self._closed = False
        self._poll: asyncio.TimerHandle | None = None
        """One timer for all who wait, while anybody does."""

    def changed(self, change: Change | None) -> None:
        for signal in self._anything:
            signal.set()
        if change is None:
            for signals in self._waiting.values():
                for signal in signals:
                    signal.set()
        else:
            for run_id, event in change.ended.items():
                for signal in self._waiting.get(run_id, ()):
                    signal.last = event
                    signal.set()

    async def ends(self, run_id: str) -> AsyncGenerator[Event | None]:
        """Yields at once, and then whenever the run may have ended: its last event, or None
        for those who have to look for themselves."""
        signal = _Signal()
        self._waiting.setdefault(run_id, set()).add(signal)
        try:
            while not self._closed:
                signal.clear()
                last, signal.last = signal.last, None
                yield last
                await self._wait(signal)
        finally:
            self._waiting[run_id].discard(signal)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    async def changes(self) -> AsyncGenerator[None]:
        """Yields at once, and then whenever anything may have changed."""
        signal = _Signal()
        self._anything.add(signal)
        try:
            while not self._closed:
                signal.clear()
                yield
                await self._wait(signal)
        finally:
            self._anything.discard(signal)

    async def _wait(self, signal: _Signal) -> None:
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)
        await signal.wait()

    def _look(self) -> None:
        """Let everybody look for themselves, and again in a while if anybody still waits."""
        self._poll = None
        self.changed(None)
        if self._waiting or self._anything:
            self._poll = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)

    def close(self) -> None:
        self._closed = True
        if self._poll is not None:
            self._poll.cancel()
        self.changed(None)


class _Signal(asyncio.Event):
    """An event of asyncio's, and what it is about."""

    last: Event | None = None


class EventsInHand:
    """The new events of the runs that this worker has, or had, in hand."""

    def __init__(self, engine: Engine, after: int) -> None:
        """`after`: the place in the log of all runs to go on from."""
        self._engine, self._after = engine, after
        self._held: set[str] = set()
        engine.takers.append(self._held)

    def close(self) -> None:
        """Be told of no more runs."""
        self._engine.takers.remove(self._held)

    async def look(self) -> tuple[dict[str, list[Event]], set[str]]:
        """What has come since the last look, by run, and the runs that have nothing more to tell.

        A look that is cancelled has not been: the next one gives the same.
        """
        mine, still = set(self._held), set(self._engine.in_hand)
        new: dict[str, list[Event]] = {}
        after = self._after
        while events := await self._engine.store.log(after, LOG_PAGE):
            after = events[-1].log
            for event in events:
                if event.run_id in mine:
                    new.setdefault(event.run_id, []).append(event)
            if len(events) < LOG_PAGE:
                break
        gone = mine - still  # not in hand before the log was read
        self._after = after
        self._held -= gone
        return new, gone
