"""An engine that several tests share, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import dev_server

from holdfast import open_engine
from holdfast.runtime.engine import Engine
from waiting import LIMIT

R = TypeVar("R")


class Running:
    """An engine that is open, on a loop in a thread of its own, for all tests of a module."""

    def __init__(self, kind: str, store: Path) -> None:
        self.kind, self.store = kind, store
        self.address = None if kind == "local" else dev_server.shared().url()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        self._stack = AsyncExitStack()
        opening = open_engine(self.store, engine=self.address)
        self.engine: Engine = self.do(self._stack.enter_async_context(opening))
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Do something on the engine's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)
