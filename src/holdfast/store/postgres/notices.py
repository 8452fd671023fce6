"""Wake-ups between processes on any machine: LISTEN and NOTIFY, off the way of commits.

A NOTIFY inside a commit has all commits of the server wait for one another. So it is sent
afterwards, on a connection of its own, at most one in a moment for all that was committed in it.
Losing one costs time, never correctness: everyone also looks by themselves now and then.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable, Iterable

import psycopg

from holdfast.store.postgres.connection import FAULTS, connect
from holdfast.store.postgres.url import PostgresUrl

QUIET_SECONDS = 0.01
"""At most one notice in this time."""
RETRY_SECONDS = 1.0


class Notices:
    """This process's ear, and its voice; `on_notice` is called in their thread."""

    def __init__(self, url: PostgresUrl, on_notice: Callable[[], None]) -> None:
        self._url, self._on_notice = url, on_notice
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._news = threading.Event()
        self._closing = False
        self.heard = threading.Event()
        """Set once it listens; tests wait for it."""
        self._thread = threading.Thread(target=self._work, name="holdfast-notices", daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Wake the others, soon; from any thread."""
        if not self._news.is_set():
            self._news.set()
            self._poke()

    def _poke(self) -> None:
        try:
            os.write(self._writing, b"!")
        except BlockingIOError:
            return  # it has enough to read

    def close(self) -> None:
        self._closing = True
        self._poke()
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    # --- its thread ---

    def _work(self) -> None:
        while not self._closing:
            try:
                with connect(self._url) as connection:
                    connection.execute(f"LISTEN {self._url.schema}".encode())
                    self.heard.set()
                    self._on_notice()  # whatever was said before is to be looked for
                    self._serve(connection)
            except FAULTS:
                if not self._closing:
                    select.select([self._reading], [], [], RETRY_SECONDS)
                    self._drain()

    def _serve(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        own = connection.info.backend_pid
        while not self._closing:
            select.select([connection.fileno(), self._reading], [], [])
            self._drain()
            connection.pgconn.consume_input()
            found = False
            while (notice := connection.pgconn.notifies()) is not None:
                found = found or notice.be_pid != own
            if found:
                self._on_notice()
            if self._news.is_set() and not self._closing:
                # Cleared first: what is committed from here on is told by another.
                self._news.clear()
                connection.execute(f"NOTIFY {self._url.schema}".encode())
                select.select([], [], [], QUIET_SECONDS)

    def _drain(self) -> None:
        try:
            while os.read(self._reading, 4096):
                pass
        except BlockingIOError:
            return


class LoopNotices:
    """The wake-ups of a store, told on its event loop."""

    def __init__(self, url: PostgresUrl, on_wake: Callable[[], None]) -> None:
        self._loop, self._on_wake = asyncio.get_running_loop(), on_wake
        self.notices = Notices(url, self._heard)

    def _heard(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_wake)
        except RuntimeError:
            return  # the loop is closed: nobody is left to wake

    def tell(self) -> None:
        self.notices.tell()

    def tell_from_thread(self) -> None:
        self.notices.tell()

    def dead(self) -> list[str]:
        """Nobody is known to be gone before their lease ends."""
        return []

    def forget(self, names: Iterable[str]) -> None:
        """There is nothing that they left."""

    def close(self) -> None:
        self.notices.close()
