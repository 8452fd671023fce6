"""What a sandbox's processes and files take, asked of the host's kernel where no cgroup counts.

All processes of a sandbox are below its first one, which also gets those whose parents ended, and
with them the time of all that have ended.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(first: int) -> float | None:
    """Time of the processes at and below `first`, those that ended included; None if it ended."""
    ticks: int | None = None
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        used = _ticks(pid)
        if used is None:
            continue  # it ended meanwhile, and whoever waited for it has its time
        ticks = used if ticks is None else ticks + used
        waiting += _children(pid)
    return None if ticks is None else ticks / _TICKS


def bytes_held(folder: int) -> int:
    """Bytes of the files on the file system of an open folder."""
    space = os.fstatvfs(folder)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _ticks(pid: int) -> int | None:
    """Its own time, and that of the children it waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return sum(int(field) for field in fields[11:15])


def _children(pid: int) -> list[int]:
    """Its children; none where the kernel has no such list, so that only the ended are counted."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            found += [int(child) for child in text.split()]
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found
