"""The clocks everything asks, so that tests and simulations can bring their own.

There are two. The wall clock says when something is due; it may be set, back and forth, by people
and by NTP. The steady one says how long something takes (a lease, a sweep, patience with an idle
run): nobody can set it, it stands still while the machine sleeps, and on one machine it is the
same for all processes, until the next boot.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Both clocks, and a way to be called by each."""

    def now(self) -> float:
        """The wall clock: seconds since the epoch."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call when the wall clock shows `when`, also if it is set meanwhile."""
        ...

    def steady(self) -> float:
        """The steady clock: seconds since some moment of this boot."""
        ...

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call when so much time has passed by the steady clock."""
        ...

    @property
    def boot(self) -> str:
        """Which boot the steady clock counts from: readings of another can't be compared."""
        ...


class SystemClock:
    """The machine's clocks, on the running event loop."""

    LOOK_SECONDS = 1.0
    """How often to look whether the wall clock was set, or the machine has slept."""

    def __init__(self) -> None:
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    @property
    def boot(self) -> str:
        return boot_id()

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch(self, self.LOOK_SECONDS)
        return _WallTimer(self, loop, watch, when, callback)


class _WallTimer:
    """Waits by the loop's clock, and is told when the wall clock has left that behind."""

    def __init__(
        self,
        clock: SystemClock,
        loop: asyncio.AbstractEventLoop,
        watch: _Watch,
        when: float,
        callback: Callable[[], None],
    ) -> None:
        self._clock, self._loop, self._watch = clock, loop, watch
        self._when, self._callback = when, callback
        self.arm()
        if when - clock.now() > clock.LOOK_SECONDS:  # a shorter one looks for itself soon enough
            watch.add(loop, self)

    def arm(self) -> None:
        left = max(self._when - self._clock.now(), 0.0)
        self._handle = self._loop.call_later(left, self._check)

    def rearm(self) -> None:
        self._handle.cancel()
        self.arm()

    def _check(self) -> None:
        if self._clock.now() >= self._when:
            self._watch.timers.discard(self)
            self._callback()
        else:  # never early: the wall clock was set back, or the loop has rounded down
            self.arm()

    def cancel(self) -> None:
        self._watch.timers.discard(self)
        self._handle.cancel()


class _Watch:
    """Looks, while long timers wait, whether the wall clock was set; then sets them anew."""

    def __init__(self, clock: SystemClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.timers: set[_WallTimer] = set()
        self._offset = 0.0
        self._looking = False

    def add(self, loop: asyncio.AbstractEventLoop, timer: _WallTimer) -> None:
        self.timers.add(timer)
        if not self._looking:
            self._looking = True
            self._offset = offset(self._clock)
            loop.call_later(self._seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.timers:
            self._looking = False
            return
        before, self._offset = self._offset, offset(self._clock)
        if abs(self._offset - before) > JUMP_SECONDS:
            for timer in list(self.timers):
                timer.rearm()
        loop.call_later(self._seconds, self._look, loop)


JUMP_SECONDS = 0.25
"""What the two clocks may part by between two looks: more is a jump, less is NTP at work."""


def offset(clock: Clock) -> float:
    """How far the wall clock is from the steady one: constant, until the wall clock is set."""
    return clock.now() - clock.steady()


@cache
def boot_id() -> str:
    """What this boot of the machine is called; the same for all its processes."""
    if sys.platform == "darwin":
        return _sysctl(b"kern.bootsessionuuid")
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _sysctl(name: bytes) -> str:
    library: Any = ctypes.CDLL(None)
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if library.sysctlbyname(name, text, ctypes.byref(size), None, 0):
        raise OSError(f"this system does not say {name.decode()}")
    return text.value.decode()
