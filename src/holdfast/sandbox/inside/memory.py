"""A watch over the sandbox's memory, for hosts without a memory cgroup.

Adds up what every process and every file holds and names who is to be killed once that passes
the limit. Coarser than the kernel's own count: it looks every tenth of a second.
"""

from __future__ import annotations

import os
from pathlib import Path

PERIOD = 0.1


def over(limit: int) -> dict[int, int] | None:
    """The memory of each process, if all of it together with the files is over `limit`."""
    space = os.statvfs("/")
    total = (space.f_blocks - space.f_bfree) * space.f_frsize
    processes: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and entry != "1":
            processes[int(entry)] = _held(entry)
    return processes if total + sum(processes.values()) > limit else None


def _held(pid: str) -> int:
    """What a process holds alone, and its share of what it has in common with others."""
    try:
        return _sum(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    except PermissionError:
        # One that forbids others to look is counted with all it shares.
        try:
            return _sum(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))
        except OSError:
            return 0
    except OSError:
        return 0  # it has just ended


def _sum(path: str, fields: tuple[bytes, ...]) -> int:
    kilobytes = 0
    for line in Path(path).read_bytes().splitlines():
        if line.startswith(fields):
            kilobytes += int(line.split()[1])
    return kilobytes * 1024
