"""Threads for steps that are plain functions.

Daemon threads, unlike those of concurrent.futures: a step that ran into its time limit can't be
stopped, and must keep neither the others nor the end of the process waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

Outcome = tuple[Any, BaseException | None]
"""What a function returned, or raised. Not set as the future's exception: that refuses some."""
Job = tuple[Callable[[], Any], asyncio.Future[Outcome], asyncio.AbstractEventLoop]

IDLE_SECONDS = 10.0


class Threads:
    """Runs functions in up to `limit` threads, made when needed and gone when idle."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0
        """Jobs that are not done yet: as many threads are wanted, as far as the limit goes."""

    async def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function in a thread, with the present context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        context = contextvars.copy_context()
        self._jobs.put((lambda: context.run(function, *args, **kwargs), future, loop))
        with self._lock:
            self._open += 1
            if self._threads < min(self._open, self._limit):
                self._threads += 1
                threading.Thread(target=self._work, name="holdfast-step", daemon=True).start()
        result, error = await future
        if error is not None:
            raise error
        return result

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads -= 1
                        return
            else:
                self._do(job)

    def _do(self, job: Job) -> None:
        function, future, loop = job
        try:
            outcome = function(), None
        except BaseException as raised:  # noqa: BLE001 - it belongs to who awaits the future
            outcome = None, raised
        with self._lock:
            self._open -= 1
        try:
            loop.call_soon_threadsafe(_settle, future, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
