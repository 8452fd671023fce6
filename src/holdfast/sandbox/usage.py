"""What of a sandbox's use falls to which command.

The host's kernel counts for the sandbox as a whole, so a command that ran alone has what was added
while it ran, with what starting it took, and the most memory that was held meanwhile. For commands
that ran beside each other the agent's word is taken, but never for more than the kernel counted.
Where the kernel counts nothing, the agent's word is held to what is possible. What nobody could
tell is None.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from holdfast.sandbox.base import Instance, Usage

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Use:
    """What a command used."""

    cpu_seconds: float | None = None
    peak_memory: int | None = None


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What a sandbox had used by a moment of its life."""

    at: datetime
    used: Usage


class Metering:
    """The meter of one sandbox. `most` is the memory it may have, where that is known here."""

    def __init__(self, instance: Instance, most: int | None) -> None:
        self._instance = instance
        self.most = sys.maxsize if most is None else most
        self._running: set[Meter] = set()
        self._peak: int | None = None
        """The highest that the kernel counted, before it was last made to count anew."""
        self._seen = Usage()
        self._of_commands = Use()

    def begin(self) -> Meter:
        """A command is about to start."""
        before = self._instance.usage()
        self._peak = _higher(self._peak, before.peak_memory)
        alone = not self._running
        for other in self._running:
            other.alone = False
        meter = Meter(self, before, alone=alone, anew=alone and self._instance.restart_peak())
        self._running.add(meter)
        return meter

    def now(self) -> Usage:
        """What the kernel has counted by now."""
        found = self._instance.usage()
        self._peak = _higher(self._peak, found.peak_memory)
        return found

    def ended(self, meter: Meter, used: Use) -> None:
        self._running.discard(meter)
        cpu, peak = self._of_commands.cpu_seconds, self._of_commands.peak_memory
        if used.cpu_seconds is not None:
            cpu = (cpu or 0.0) + used.cpu_seconds
        self._of_commands = Use(cpu, _higher(peak, used.peak_memory))

    def forget(self, meter: Meter) -> None:
        self._running.discard(meter)

    def look(self) -> None:
        """It is about to end: see what can only be seen while it lives."""
        self._seen = self._merged(self._instance.usage(thorough=True))

    def total(self) -> Usage:
        """What the sandbox used: by the kernel, else what is known of its commands together."""
        found = self._merged(self._instance.usage(thorough=True))
        cpu, peak = found.cpu_seconds, _higher(self._peak, found.peak_memory)
        of_commands = self._of_commands
        return replace(
            found,
            cpu_seconds=of_commands.cpu_seconds if cpu is None else cpu,
            peak_memory=of_commands.peak_memory if peak is None else peak,
        )

    def _merged(self, found: Usage) -> Usage:
        """What was found, and what was seen before of that which can't be found any more."""
        self._peak = _higher(self._peak, found.peak_memory)
        seen = self._seen
        return replace(
            found,
            cpu_seconds=_higher(seen.cpu_seconds, found.cpu_seconds),
            disk_used=seen.disk_used if found.disk_used is None else found.disk_used,
        )


class Meter:
    """One command's; `end` it, or `drop` it if the command never ran."""

    def __init__(self, metering: Metering, before: Usage, *, alone: bool, anew: bool) -> None:
        self._metering = metering
        self.before = before
        self.alone = alone
        """No other command ran while it did."""
        self._anew = anew
        self._began = time.monotonic()
        self._over = False

    def end(self, cpu: object, peak: object) -> Use:
        """What it used, given what the agent says, which may be anything."""
        now = self._metering.now()
        used = Use(self._cpu_seconds(now, cpu), self._peak_memory(now, peak))
        if not self._over:
            self._over = True
            self._metering.ended(self, used)
        return used

    def drop(self) -> None:
        """It never ran, or nobody will know how it ended."""
        self._over = True
        self._metering.forget(self)

    def _cpu_seconds(self, now: Usage, told: object) -> float | None:
        if now.cpu_seconds is not None and self.before.cpu_seconds is not None:
            added = max(0.0, now.cpu_seconds - self.before.cpu_seconds)
            return added if self.alone else _at_most(told, added)
        possible = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return _at_most(told, possible)

    def _peak_memory(self, now: Usage, told: object) -> int | None:
        counted = now.peak_memory
        if counted is None:
            held = _at_most(told, self._metering.most)
        elif self.alone and (self._anew or counted > (self.before.peak_memory or 0)):
            return counted
        else:
            held = _at_most(told, counted)
        return int(held) if held else None  # a kernel that does not know says 0


def _at_most(told: object, most: float) -> float | None:
    """A number somebody claims, if it is one, and no more than is possible."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not told >= 0:
        return None
    return min(told, most)


def _higher(one: T | None, other: T | None) -> T | None:
    return max((each for each in (one, other) if each is not None), default=None)
