"""The host's side of the `namespace` backend: asks the fork server for sandboxes, and removes them.

Works as root (sandboxes run as an unprivileged user nobody else has) and without (as the same
user, who is nobody inside). Creating is one message with descriptors; removing is one kill of
the first process, after which the kernel removes processes, mounts and network by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError, SandboxUnavailable
from holdfast.sandbox import cleanup, runtimes
from holdfast.sandbox.base import Isolation, Listeners, Probe, Standing, Usage
from holdfast.sandbox.channel import readable
from holdfast.sandbox.namespace import cgroups, launcher, server, uids
from holdfast.sandbox.probes import try_out
from holdfast.sandbox.spec import Spec
from holdfast.sandbox.state import HostFolder

_START_LIMIT = 30.0
_CREATE_LIMIT = 30.0  # for a machine under load; that it ended is seen at once


@dataclass(slots=True)
class NamespaceInstance:
    """A running sandbox: its channel, its first process, its cgroup."""

    id: str
    channel: socket.socket
    folder: HostFolder
    cgroup: cgroups.Cgroup | None
    pid: int = 0
    pidfd: int = -1
    upper: int | None = None
    listeners: Listeners | None = None
    relayed: bool = False
    uid: int | None = None
    """A kernel user of its own, to be given back."""
    uids: uids.Uids | None = None
    _gone: bool = field(default=False)
    _last: Usage = field(default=Usage())

    def usage(self, *, thorough: bool = False) -> Usage:
        if self._gone:
            return self._last
        found = self.cgroup.usage() if self.cgroup else Usage()
        if not thorough:
            return found
        cpu = found.cpu_seconds
        if cpu is None and self.pidfd >= 0 and not _ended(self.pidfd):
            cpu = cpu_seconds(self.pid)
        files = bytes_held(self.upper) if self.upper is not None else None
        return replace(found, cpu_seconds=cpu, disk_used=files)

    def restart_peak(self) -> bool:
        return self.cgroup is not None and not self._gone and self.cgroup.restart_peak()

    def freeze(self) -> bool:
        return self.cgroup is not None and self.cgroup.freeze()

    def thaw(self) -> None:
        if self.cgroup is not None and not self._gone:
            self.cgroup.thaw()

    def kill(self) -> None:
        self.thaw()  # what is frozen does not die
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    async def destroy(self) -> None:
        if self._gone:
            return
        self._last = self.usage(thorough=True)
        self.kill()
        self._gone = True
        self.channel.close()
        if self.listeners is not None:
            self.listeners.close()
        if self.upper is not None:
            os.close(self.upper)
        if self.pidfd >= 0:
            await readable(self.pidfd, _CREATE_LIMIT)
            os.close(self.pidfd)
        if self.cgroup is not None:  # now that nobody adds to it any more
            whole = self.cgroup.usage()
            self._last = replace(whole, disk_used=self._last.disk_used)
            self.cgroup.close()
        for path in self.cgroup.paths if self.cgroup else ():
            if not cleanup.remove_cgroup(path, wait=0.002):
                await asyncio.to_thread(cleanup.remove_cgroup, path, wait=5.0)
        if self.uids is not None and self.uid is not None:
            self.uids.give_back(self.uid)
        self.folder.forget(self.id)


class NamespaceBackend:
    """Linux namespaces, seccomp and cgroups."""

    name = "namespace"
    isolation = Isolation.NAMESPACE
    refill_after = 0.0

    def __init__(
        self, folder: HostFolder, state: Path, *, packages: tuple[str, ...], use_cgroups: bool
    ) -> None:
        self._folder, self._state, self._packages = folder, state, packages
        self._uid = uids.FIRST if os.geteuid() == 0 else None
        self._uids: uids.Uids | None = None
        self._server: socket.socket | None = None
        self._alive = -1
        self._launcher: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        none: dict[str, str] = dict.fromkeys(cgroups.CONTROLLERS, "switched off")
        self._cgroups = (
            cgroups.find(f"holdfast-{folder.name}") if use_cgroups else cgroups.Cgroups(0, {}, none)
        )
        folder.write("cgroups.json", self._cgroups.roots)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can't be enforced here as it should be, and what is done instead."""
        instead = {
            "memory": "each process is limited, and a watch kills what passes the limit together",
            "pids": "processes are counted per user by RLIMIT_NPROC",
            "cpu": "whole processors are assigned instead of shares",
        }
        missing = tuple(
            f"no {controller} cgroup ({reason}): {instead[controller]}"
            for controller, reason in self._cgroups.missing.items()
        )
        if self._server is None or self._uids is not None:
            return missing
        why = "the host is not root" if self._uid is None else "no idmapped mounts, Linux 6.3"
        return (
            *missing,
            f"all sandboxes are one kernel user ({why}): what the kernel counts per user, such as "
            "descriptors in flight, pipe memory and inotify, one of them can use up for all",
        )

    async def probe(self) -> Probe:
        if sys.platform != "linux":
            return Probe(Standing.ABSENT, "needs Linux")
        found = await try_out(self.create)
        return replace(found, warnings=self.warnings)

    async def create(self, id: str, spec: Spec) -> NamespaceInstance:
        forks = await self._running()
        group = self._cgroups.make(id, spec.limits) if self._cgroups.parents else None
        channel, theirs = socket.socketpair()
        setup, their_setup = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        instance = NamespaceInstance(id, channel, self._folder, group)
        if self._uids is not None:
            instance.uids, instance.uid = self._uids, self._uids.take()
        joining = group.open_for_joining() if group else []
        try:
            self._note(instance)
            request = self._request(instance, spec, len(joining))
            fds = [theirs.fileno(), their_setup.fileno(), *joining]
            socket.send_fds(forks, [json.dumps(request).encode()], fds)
            theirs.close()
            their_setup.close()
            await self._set_up(instance, setup, spec)
        except BaseException:
            await asyncio.shield(instance.destroy())
            raise
        finally:
            for fd in joining:
                os.close(fd)
            for end in (theirs, setup, their_setup):
                end.close()
        return instance

    def _request(self, instance: NamespaceInstance, spec: Spec, joining: int) -> dict[str, Any]:
        limits = spec.limits
        rlimits = {"NOFILE": limits.open_files, "CORE": 0, "MEMLOCK": 1 << 20, "MSGQUEUE": 1 << 16}
        missing = self._cgroups.missing
        if "pids" in missing:
            rlimits["NPROC"] = limits.pids + 3
        if "memory" in missing:
            rlimits["DATA"] = limits.memory
        return {
            "name": instance.id.lower().replace("_", "-"),
            "disk": limits.disk,
            "inodes": limits.inodes,
            "rlimits": rlimits,
            "uid": self._uid if instance.uid is None else instance.uid,
            "mapped_from": None if instance.uid is None else self._uid,
            "ports": list(spec.network.ports),
            "layers": [Path(layer).parent.name for layer in spec.layers],
            "affinity": max(1, math.ceil(limits.cpus)) if "cpu" in missing else None,
            "memory": limits.memory if "memory" in missing else None,
            "cgroups": joining,
            "strict": "memory" in missing,
        }

    async def _set_up(self, instance: NamespaceInstance, setup: socket.socket, spec: Spec) -> None:
        """Follow the child's messages until it is ready."""
        setup.setblocking(False)
        while True:
            if not await readable(setup.fileno(), _CREATE_LIMIT):
                raise SandboxError(f"{instance.id} was not ready within {_CREATE_LIMIT:.0f} s")
            message, fds, _, _ = socket.recv_fds(setup, 65536, 64)
            if not message:
                raise SandboxError(f"{instance.id} ended while it was set up")
            told: dict[str, Any] = json.loads(message)
            if "pid" in told:
                instance.pid = int(told["pid"])
                instance.pidfd = os.pidfd_open(instance.pid)
                self._note(instance)
            elif "error" in told:
                raise SandboxError(f"{instance.id} could not be set up: {told['error']}")
            else:
                instance.upper = fds[0]
                if len(fds) > 1:
                    instance.listeners = _listeners(fds[1:], spec.network.ports)
                return

    def _note(self, instance: NamespaceInstance) -> None:
        self._folder.record(
            instance.id,
            {
                "id": instance.id,
                "backend": self.name,
                "pid": instance.pid or None,
                "born": cleanup.start_time(instance.pid) if instance.pid else None,
                "cgroups": instance.cgroup.paths if instance.cgroup else [],
            },
        )

    async def _running(self) -> socket.socket:
        """The fork server's socket, starting it if need be."""
        if self._server is not None and self._launcher is not None:
            if self._launcher.poll() is None:
                return self._server
            self.close()
        return await asyncio.to_thread(self._start_once)

    def _start_once(self) -> socket.socket:
        with self._starting:
            return self._server if self._server is not None else self._start()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_end, alive = os.pipe()
        library = str(Path(__file__).parent.parent)
        config = {
            "host_pid": os.getpid(),
            "alive_fd": read_end,
            "server_fd": theirs.fileno(),
            "runtimes": asdict(runtimes.find(self._state, self._packages)),
            "snapshots": str(self._state / "snapshots"),
            "view": str(self._folder.path / "view"),
            "folder": str(self._folder.path),
            "uid": self._uid,
            "library": library,
        }
        python = getattr(sys, "_base_executable", sys.executable)
        words = cleanup.bare_command(python, library, launcher.__name__, "start")
        process = subprocess.Popen(
            [words[0], "-I", "-S", *words[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(read_end, theirs.fileno()),
            env={},
            cwd="/",
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(config).encode())
        process.stdin.close()
        theirs.close()
        os.close(read_end)
        ours.settimeout(_START_LIMIT)
        try:
            ready = ours.recv(64)
        except TimeoutError:
            ready = b""
        if not ready:
            process.kill()
            assert process.stderr is not None
            told = process.stderr.read().decode("utf-8", "replace").strip()
            os.close(alive)
            ours.close()
            raise SandboxUnavailable(
                f"the fork server did not start: {told.splitlines()[-1] if told else 'no reason'}",
                hint="`holdfast sandbox doctor` tells what this machine lacks",
            )
        ours.settimeout(None)
        if self._uid is not None and ready == server.READY_MAPPED:
            self._uids = self._uids or uids.Uids()
        self._launcher, self._alive, self._server = process, alive, ours
        return ours

    def close(self) -> None:
        """Let the launcher go; it removes what is left."""
        if self._server is not None:
            self._server.close()
            os.close(self._alive)
            self._server = None
        if self._launcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(5.0)
            if self._launcher.stderr is not None:
                self._launcher.stderr.close()
            self._launcher = None
        if self._uids is not None:
            self._uids.close()
            self._uids = None


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _listeners(fds: list[int], ports: tuple[int, ...]) -> Listeners:
    """In the order of `enter`: names and a socket a port, if there is a network; the watch."""
    sockets = [socket.socket(fileno=fd) for fd in fds]
    if not ports:
        return Listeners(watch=tuple(sockets))
    count = 1 + len(ports)
    connections = dict(zip(ports, sockets[1:count], strict=True))
    return Listeners(sockets[0], connections, tuple(sockets[count:]))


# --- use, asked of the host's kernel where no cgroup counts ---
# All processes of a sandbox are below its first one, which also gets those whose parents ended,
# and with them the time of all that have ended.

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
