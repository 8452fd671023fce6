"""Limits on memory, processes and CPU through control groups, versions 1 and 2.

One cgroup per sandbox, below one per host process, so that all can be found and removed by
name. Where a controller can't be used, `missing` says so in words; the backend falls back to
rlimits and passes the words on.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.sandbox.base import Usage
from holdfast.sandbox.cleanup import set_word
from holdfast.sandbox.spec import Limits

CONTROLLERS = ("memory", "pids", "cpu")
_COUNTING = "cpuacct"
"""Version 1 counts time in a controller of its own, often mounted with `cpu`; it limits nothing."""
_FREEZER = "freezer"
"""Version 1 stops processes by a controller of its own; every cgroup of version 2 can."""
_BESIDES = (_COUNTING, _FREEZER)
_FREEZE_LIMIT = 10.0
_PERIOD = 100_000
_ONLY_WITH_SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Files a kernel without accounting of swap does not have."""


@dataclass(slots=True)
class Cgroups:
    """Where this host process may make cgroups: a parent folder for each controller."""

    version: int
    parents: dict[str, str]
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def make(
        self, name: str, limits: Limits, *, extra_memory: int = 0, extra_processes: int = 3
    ) -> Cgroup:
        """A new cgroup with these limits, not yet joined by anybody.

        The extra is for what runs in it of ours: the agent, its template, and a child
        that has not become its command yet; more where a backend brings more.
        """
        group = Cgroup(self.version, {c: f"{p}/{name}" for c, p in self.parents.items()})
        for folder in dict.fromkeys(group.folders.values()):
            os.makedirs(folder, exist_ok=True)
        for controller in group.folders:
            whole = replace(
                limits, memory=limits.memory + extra_memory, pids=limits.pids + extra_processes
            )
            for file, value in _settings(self.version, controller, whole):
                group.write(controller, file, value)
        return group

    @property
    def roots(self) -> list[str]:
        """The host process's own cgroup folders."""
        return list(dict.fromkeys(self.parents.values()))


@dataclass(slots=True)
class Cgroup:
    """One sandbox's cgroup: a folder per controller (the same one in version 2)."""

    version: int
    folders: dict[str, str]
    _peak: int = -1
    """In version 2 a peak is counted anew for a descriptor, since Linux 6.12."""

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys(self.folders.values()))

    def write(self, controller: str, file: str, value: str) -> None:
        path = Path(self.folders[controller], file)
        if file in _ONLY_WITH_SWAP and not path.exists():
            return
        path.write_text(value)

    def open_for_joining(self) -> list[int]:
        """Descriptors a process writes "0" to in order to join."""
        return [os.open(f"{path}/cgroup.procs", os.O_WRONLY) for path in self.paths]

    def usage(self) -> Usage:
        """What the kernel has killed, refused and counted so far."""
        memory_file = "memory.events" if self.version == 2 else "memory.oom_control"
        return Usage(
            self._counter("memory", memory_file, "oom_kill") or 0,
            self._counter("pids", "pids.events", "max") or 0,
            self._cpu_seconds(),
            self._peak_memory(),
        )

    def restart_peak(self) -> bool:
        """Count the highest memory anew from now on; whether this kernel can."""
        folder = self.folders.get("memory")
        if folder is None:
            return False
        try:
            if self.version == 2:
                if self._peak < 0:
                    self._peak = os.open(f"{folder}/memory.peak", os.O_RDWR)
                os.pwrite(self._peak, b"0", 0)
            else:
                fd = os.open(f"{folder}/memory.max_usage_in_bytes", os.O_WRONLY)
                try:
                    os.write(fd, b"0")
                finally:
                    os.close(fd)
        except OSError:
            self.close()
            return False
        return True

    def freeze(self) -> bool:
        """Stop every process in it; False where the kernel can't, or did not within a while."""
        file, word, state, frozen = self._freezer("FROZEN", "1")
        if not set_word(file, word):
            return False
        deadline = time.monotonic() + _FREEZE_LIMIT
        while frozen not in Path(state).read_text().splitlines():
            if time.monotonic() > deadline:
                self.thaw()
                return False
            time.sleep(0.001)
        return True

    def thaw(self) -> None:
        """Let them go on."""
        file, word, _, _ = self._freezer("THAWED", "0")
        set_word(file, word)

    def _freezer(self, first: str, second: str) -> tuple[str, str, str, str]:
        """The file and the word for it, and where and how its success is told."""
        if self.version == 2:
            folder = self.folders["pids"]
            return f"{folder}/cgroup.freeze", second, f"{folder}/cgroup.events", f"frozen {second}"
        file = f"{self.folders.get(_FREEZER, '/nonexistent')}/freezer.state"
        return file, first, file, first

    def close(self) -> None:
        """Let go of what counts the peak."""
        if self._peak >= 0:
            os.close(self._peak)
            self._peak = -1

    def _cpu_seconds(self) -> float | None:
        if self.version == 2:
            used = self._counter("cpu", "cpu.stat", "usage_usec")
            return None if used is None else used / 1e6
        used = self._number(_COUNTING, "cpuacct.usage")
        return None if used is None else used / 1e9

    def _peak_memory(self) -> int | None:
        if self._peak >= 0:
            return int(os.pread(self._peak, 64, 0))
        return self._number(
            "memory", "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        )

    def _number(self, controller: str, file: str) -> int | None:
        text = self._text(controller, file)
        return None if text is None else int(text)

    def _counter(self, controller: str, file: str, key: str) -> int | None:
        for line in (self._text(controller, file) or "").splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
        return None

    def _text(self, controller: str, file: str) -> str | None:
        """A file of the kernel's, in one read: this is done for every command."""
        folder = self.folders.get(controller)
        if folder is None:
            return None
        try:
            fd = os.open(f"{folder}/{file}", os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, 8192).decode()
        finally:
            os.close(fd)


def _settings(version: int, controller: str, limits: Limits) -> list[tuple[str, str]]:
    if controller in _BESIDES:
        return []
    quota = max(1000, int(limits.cpus * _PERIOD))
    if controller == "pids":
        return [("pids.max", str(limits.pids))]
    if version == 2:
        if controller == "cpu":
            return [("cpu.max", f"{quota} {_PERIOD}")]
        return [("memory.max", str(limits.memory)), ("memory.swap.max", "0")]
    if controller == "cpu":
        return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    return [
        ("memory.limit_in_bytes", str(limits.memory)),
        ("memory.memsw.limit_in_bytes", str(limits.memory)),
    ]


def find(
    name: str, *, mountinfo: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup"
) -> Cgroups:
    """Make this host process's cgroups, in whichever version has the controllers."""
    mounts = _mounts(Path(mountinfo).read_text())
    places = _own_places(Path(own).read_text())
    first = {c: mounts[c] for c in (*CONTROLLERS, *_BESIDES) if c in mounts}
    if first.keys() - {*_BESIDES}:
        return _version_1(name, first, places)
    if "" in mounts:
        return _version_2(name, mounts[""], places.get("", "/"))
    return Cgroups(0, {}, dict.fromkeys(CONTROLLERS, "no cgroup filesystem is mounted"))


def _mounts(mountinfo: str) -> dict[str, str]:
    """Controller (or "" for version 2) to its mount point."""
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        place = left.split(" ")[4]
        if kind == "cgroup2":
            found[""] = place
        elif kind == "cgroup":
            known = (*CONTROLLERS, *_BESIDES)
            found |= {c: place for c in options.split(",") if c in known}
    return found


def _own_places(text: str) -> dict[str, str]:
    places: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            places[controller] = path
    return places


def _version_1(name: str, mounts: dict[str, str], places: dict[str, str]) -> Cgroups:
    groups = Cgroups(1, {})
    for controller in (*CONTROLLERS, *_BESIDES):
        if controller not in mounts:
            groups.missing[controller] = "the controller is not mounted"
            continue
        # Below our own, so that limits the host set for us hold for the sandboxes too.
        own = mounts[controller] + places.get(controller, "/").rstrip("/")
        parent = f"{own if Path(own).is_dir() else mounts[controller]}/{name}"
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError as error:
            groups.missing[controller] = f"{parent} can't be made: {error.strerror}"
        else:
            groups.parents[controller] = parent
    for each in _BESIDES:  # without these nothing is unlimited
        groups.missing.pop(each, None)
    return groups


def _version_2(name: str, mount: str, own: str) -> Cgroups:
    """Beside our own cgroup, or at the top: a cgroup with processes can't have limited children."""
    beside = os.path.dirname((mount + own).rstrip("/"))
    reasons: list[str] = []
    for place in dict.fromkeys([beside if len(beside) >= len(mount) else mount, mount]):
        try:
            _hand_down(place)
            parent = f"{place}/{name}"
            os.makedirs(parent, exist_ok=True)
            _hand_down(parent)
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
            continue
        return Cgroups(2, dict.fromkeys(CONTROLLERS, parent))
    return Cgroups(2, {}, dict.fromkeys(CONTROLLERS, "; ".join(reasons)))


def _hand_down(folder: str) -> None:
    """Let the children of this cgroup have limits."""
    control = Path(folder, "cgroup.subtree_control")
    lacking = [c for c in CONTROLLERS if c not in control.read_text().split()]
    if lacking:
        control.write_text(" ".join(f"+{c}" for c in lacking))
