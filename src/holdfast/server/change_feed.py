"""The live feed: the log of all runs' events, to any number of readers, each from where it was.

One task reads what is new in the log, once for everybody, and keeps the last of it, ready to be
sent. A reader is a place in the log and no more: one that is in step takes from what is kept; one
that comes back, or can't keep up, reads from the store, a page at a time, until it is in step.
So nobody misses or gets anything twice, and a slow client costs no memory.

The task runs only while there are readers. A reader may ask to be told of what is not in the log
as well (`Touches`); that leaves its place as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

from holdfast.errors import CorruptEvent, ServerUnavailable, StoreError
from holdfast.records import RUN_ENDS, Event
from holdfast.runtime.engine import Engine
from holdfast.server import sse
from holdfast.server.replies import encoded
from holdfast.server.views import event_json
from holdfast.store import opener
from holdfast.store.inspection import CHANGE_KINDS, ChangeDetector, Changes, Inspection

log = logging.getLogger("holdfast")

PAGE = 100
PIECE_BYTES = 64 * 1024
"""About so much is sent at a time; it is all that a client who does not take it holds up."""
KEPT = 2000
KEPT_BYTES = 8 * 1024 * 1024
PAUSE_SECONDS = 0.02
"""Between two looks at the log: what is committed meanwhile is taken in one go."""
LOOK_SECONDS = 0.03
"""Between two looks for touches: what is left of a tenth of a second is for the page."""
AFTER_ERROR_SECONDS = 1.0
SETTLE_SECONDS = 2.0
"""Records of sandboxes are written a moment after the fact; longer than this is another matter."""


@dataclass(frozen=True)
class Touch:
    """What a reader wants to be told of beside the log."""

    kinds: Sequence[str]
    mark: str | None = None
    """Of the state it knows; None: of no state."""


@dataclass(frozen=True, slots=True)
class Item:
    """An event, ready to be sent."""

    log: int
    run_id: str
    type: str
    frame: bytes


class Feed:
    """See the module's text."""

    def __init__(
        self, engine: Engine, *, keep_alive: float = 15.0, max_readers: int = 1000
    ) -> None:
        self._engine = engine
        self._keep_alive = keep_alive
        self._max_readers = max_readers
        self._kept: deque[Item] = deque()
        self._kept_bytes = 0
        self._floor = 0
        """Everything behind this place, up to `_end`, is kept."""
        self._end = 0
        self._readers: set[_Reader] = set()
        self._damaged: set[str] = set()
        """What was told of it; once is enough."""
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._touches = Touches(engine.store.name)
        self.closed = asyncio.Event()

    # --- readers ---

    async def follow(
        self,
        after: int | None = None,
        *,
        run_id: str | None = None,
        types: Sequence[str] = (),
        touch: Touch | None = None,
    ) -> AsyncGenerator[bytes]:
        """The frames of the events behind `after` (None: from now on), and then as they come.

        `run_id`: of this run alone; ends when the run has. `types`: only events whose type
        begins with one of these. `touch`: with frames `touch`, without an id, for what changed
        outside the log.
        """
        reader = _Reader(run_id)
        self._enter(reader)
        watch = None if touch is None else Watch(run_id, touch.kinds, reader.signal)
        try:
            await self._begin()
            if watch is not None and touch is not None:
                await self._touches.enter(watch, touch.mark)
            place = self._end if after is None else after
            if place > max(self._end, await self._engine.store.log_end()):
                # The store was replaced by an older one: what the client knows is another log's.
                place = self._end
                yield sse.frame(b"{}", event="reset")
            yield b"id: %d\n\n" % place  # so that a reconnect before the first event misses nothing
            async with aclosing(self._frames(reader, place, tuple(types), watch)) as found:
                async for frames in found:
                    yield frames
        except StoreError as error:
            # The client comes back by itself, and goes on where it was.
            log.error("an event stream ends early: %s", error)
        finally:
            self._readers.discard(reader)
            if watch is not None:
                self._touches.leave(watch)

    async def _frames(
        self, reader: _Reader, place: int, types: tuple[str, ...], watch: Watch | None
    ) -> AsyncGenerator[bytes]:
        """What comes behind `place`, as long as the server runs and, for one run, until its end."""
        run_id = reader.run_id
        may_have_ended = run_id is not None  # the end may be in the log behind `place` already
        while not self.closed.is_set():
            reader.signal.clear()  # before reading: what comes meanwhile sets it again
            # Asked before the log is read: whatever the run did is then in what is read.
            ended = may_have_ended and await self._has_ended(run_id)
            items, place, more = await self._behind(place, run_id, from_store=ended)
            if run_id is not None and any(item.type in RUN_ENDS for item in items):
                may_have_ended = True
            if frames := [i.frame for i in items if not types or i.type.startswith(types)]:
                yield b"".join(frames)
            if watch is not None and (kinds := watch.take()):
                yield sse.frame(encoded({"kinds": kinds}), event="touch")
            if more:
                continue
            if ended:
                if watch is not None and run_id is not None:
                    await self._touches.settled(run_id)
                yield sse.frame(b"{}", id=place, event="end")
                return
            if items and may_have_ended:
                continue  # its end was among them: ask the store, and read what came meanwhile
            may_have_ended = False  # it runs; the next end event says when to ask again
            if not await self._wait(reader.signal):
                yield sse.KEEP_ALIVE

    def _enter(self, reader: _Reader) -> None:
        self.check_room()
        self._readers.add(reader)

    def check_room(self) -> None:
        """Raises ServerUnavailable if there are readers enough, or no more will be served."""
        if self.closed.is_set():
            raise ServerUnavailable("the server is being stopped")
        if len(self._readers) >= self._max_readers:
            raise ServerUnavailable(
                f"{self._max_readers} event streams are open already", hint="try again later"
            )

    async def _wait(self, signal: asyncio.Event) -> bool:
        """Wait for news; False if there were none for as long as a client should hear nothing."""
        try:
            async with asyncio.timeout(self._keep_alive):
                await signal.wait()
        except TimeoutError:
            return False
        return True

    async def changes(self) -> AsyncGenerator[bool]:
        """For readers of something else than the log: True at once and at every change, False
        when it is time to say that one is still there."""
        reader = _Reader(None, every=True)
        self._enter(reader)
        try:
            await self._begin()
            reader.signal.set()
            while not self.closed.is_set():
                news = await self._wait(reader.signal)
                reader.signal.clear()
                yield news
        finally:
            self._readers.discard(reader)

    async def _has_ended(self, run_id: str | None) -> bool:
        run = await self._engine.store.get(run_id or "")
        return run is None or run.ended

    async def _behind(
        self, place: int, run_id: str | None, *, from_store: bool
    ) -> tuple[list[Item], int, bool]:
        """What comes behind a place, the place behind that, and whether there is more.

        `from_store`: all that is recorded by now; what is kept may be a moment behind.
        """
        if place >= self._floor and not from_store:
            items, end, more = self._newest(place, run_id), max(place, self._end), False
        else:
            end = max(place, self._end)  # asked first: what is up to here is in the store
            page = await self._page(place, run_id)
            items, more = [_item(event) for event in page], len(page) == PAGE
        size = 0
        for count, item in enumerate(items, 1):
            size += len(item.frame)
            if size > PIECE_BYTES and count < len(items):
                return items[:count], item.log, True
        if items and (more or items[-1].log > end):
            end = items[-1].log
        return items, end, more

    def _newest(self, place: int, run_id: str | None) -> list[Item]:
        found: list[Item] = []
        for item in reversed(self._kept):
            if item.log <= place:
                break
            if run_id is None or item.run_id == run_id:
                found.append(item)
        return found[::-1]

    async def _page(self, after: int, run_id: str | None = None) -> list[Event]:
        try:
            return await self._engine.store.log(after, PAGE, run_id)
        except CorruptEvent as error:
            if error.message not in self._damaged:
                self._damaged.add(error.message)
                log.warning("the live feed leaves out what is damaged: %s", error)
        return await self._sound(after, run_id)

    async def _sound(self, after: int, run_id: str | None) -> list[Event]:
        """Events one by one, without the damaged: they must not hide those of other runs."""
        end, found = await self._engine.store.log_end(), list[Event]()
        while after < end and len(found) < PAGE:
            try:
                event = await self._engine.store.log(after, 1, run_id)
            except CorruptEvent:
                after += 1
                continue
            if not event:
                break
            found += event
            after = event[0].log
        return found

    # --- the task that reads for all ---

    async def _begin(self) -> None:
        async with self._starting:
            if self._task is None or self._task.done():
                self._kept.clear()
                self._kept_bytes = 0
                self._floor = self._end = await self._engine.store.log_end()
                self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for _ in self._engine.watchers.changes():
            try:
                while page := await self._page(self._end):
                    self._take(page)
                    if len(page) < PAGE:
                        break
            except StoreError as error:
                log.error("the log can't be read, trying again: %s", error)
            for reader in self._readers:
                if reader.every:
                    reader.signal.set()
            if not self._readers or self.closed.is_set():
                return
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, page: list[Event]) -> None:
        items = [_item(event) for event in page]
        self._kept.extend(items)
        self._kept_bytes += sum(len(item.frame) for item in items)
        self._end = items[-1].log
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            dropped = self._kept.popleft()
            self._kept_bytes -= len(dropped.frame)
            self._floor = dropped.log
        runs = {item.run_id for item in items}
        for reader in self._readers:
            if reader.run_id is None or reader.run_id in runs:
                reader.signal.set()

    async def close(self) -> None:
        """End every stream; their clients come back to whoever serves next."""
        self.closed.set()
        for reader in self._readers:
            reader.signal.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._touches.close()


class _Reader:
    """Somebody who wants to know of news."""

    def __init__(self, run_id: str | None, *, every: bool = False) -> None:
        self.run_id = run_id
        self.every = every
        """Whether changes that left nothing in the log count, such as pieces of a stream."""
        self.signal = asyncio.Event()


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
        return [name for name in CHANGE_KINDS if name in waiting]


class Touches:
    """Tells readers of what changed outside the log.

    A model call that ends in the middle of a step, a command, a sandbox: none is an event. One
    task looks at the store, once for everybody and only while somebody asked for it, and wakes
    those whose run was touched. A touch has no place in the log and is no record: it says that
    looking again is worth it. Several that come together are one.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._inspection: Inspection | None = None
        self._detector: ChangeDetector | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._looking = asyncio.Lock()
        self._watches: set[Watch] = set()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, watch: Watch, mark: str | None) -> None:
        """Tell a reader from now on; at once, if `mark` is of another state than there is now."""
        await self._look()  # first: what was before is none of its business
        self._watches.add(watch)
        assert self._detector is not None
        if mark is not None and mark != self._detector.mark():
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
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return

    async def _is_open(self, run_id: str) -> bool:
        await self._look()
        assert self._detector is not None
        return self._detector.has_open(run_id)

    async def _work(self) -> None:
        while self._watches:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except StoreError as error:
                log.error("the store's changes can't be read, trying again: %s", error)
                await asyncio.sleep(AFTER_ERROR_SECONDS)

    async def _look(self) -> None:
        async with self._looking:
            if self._detector is None or self._thread is None:
                self._inspection = opener.inspection(self._store)
                self._detector = self._inspection.detector()
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-changes")
            if not self._detector.has_changed():
                return
            loop = asyncio.get_running_loop()
            touched = await loop.run_in_executor(self._thread, self._detector.look)
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
        if self._detector is not None:
            self._detector.close()
        if self._inspection is not None:
            await asyncio.to_thread(self._inspection.close)


def _item(event: Event) -> Item:
    data = encoded(event_json(event))
    return Item(event.log, event.run_id, event.type, sse.frame(data, id=event.log))


def last_event_id(given: str | None) -> int | None:
    """The place a client says it has come to; what is no place is none."""
    return int(given) if given and given.isdecimal() and len(given) < 19 else None
