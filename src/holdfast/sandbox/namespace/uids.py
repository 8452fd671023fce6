"""Kernel users for sandboxes: each live sandbox of a root host has one that no other has.

What the kernel counts per user (descriptors in flight, pipe memory, inotify watches, signals
queued) one sandbox can then use up for itself alone. A host process takes whole blocks of the
range, each held by a lock that ends with the process, so hosts never share a user.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import threading
from pathlib import Path

FIRST = 1_879_000_001
"""Owner of the files all sandboxes start from, and the user of sandboxes that must share one."""
BLOCK = 256
BLOCKS = 4096
LOCKS = Path("/run/holdfast/uids")


class Uids:
    """The users this host process may hand out."""

    def __init__(self, locks: Path = LOCKS) -> None:
        self._locks = locks
        self._guard = threading.Lock()
        self._held: list[int] = []
        self._free: list[int] = []

    def take(self) -> int:
        """A user no live sandbox of this machine has; the lowest first, so that few are used."""
        with self._guard:
            if not self._free:
                self._free = self._claim()
            return heapq.heappop(self._free)

    def give_back(self, uid: int) -> None:
        """Its sandbox is gone, with every process of it."""
        with self._guard:
            heapq.heappush(self._free, uid)

    def _claim(self) -> list[int]:
        self._locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        for block in range(BLOCKS):
            fd = os.open(self._locks / str(block), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self._held.append(fd)
            first = FIRST + 1 + block * BLOCK
            return list(range(first, first + BLOCK))
        raise OSError(f"all {BLOCK * BLOCKS} users for sandboxes are taken")

    def close(self) -> None:
        """Let others have them."""
        with self._guard:
            for fd in self._held:
                os.close(fd)
            self._held.clear()
            self._free.clear()
