"""What sandboxes leave outside themselves, looked for everywhere on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def traces(state: Path) -> dict[str, list[str]]:
    """Everything that is left of sandboxes whose state is kept in this folder."""
    hosts = sorted(os.listdir(state / "hosts")) if (state / "hosts").is_dir() else []
    found = {
        "folders": hosts,
        "processes": [f"{pid} {_words(pid)}" for pid in _processes() if _holds(pid, state)],
        "mounts": [line for line in _read("/proc/self/mountinfo").splitlines() if str(state) in line],
        "cgroups": [at for at, _, _ in os.walk("/sys/fs/cgroup") if any(h in at for h in hosts)],
    }  # fmt: skip
    return {kind: what for kind, what in found.items() if what}


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _holds(pid: str, state: Path) -> bool:
    """Whether a process has one of the folder's files open, or sees a mount of one."""
    if str(state) in _read(f"/proc/{pid}/mountinfo"):
        return True
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:  # it has ended meanwhile
        return False
    return any(link.startswith(str(state)) for link in links)


def _words(pid: str) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ")[:100]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
