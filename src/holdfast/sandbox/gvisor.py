"""The `gvisor` backend: each sandbox is a container of `runsc`, a kernel in user space.

Code inside talks to that kernel; of the host's it can reach only the few calls `runsc` itself
makes. The agent is the container's first process and its channel a socket passed as standard
input, so everything ends with this process here too. Needs root and `runsc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError, SandboxUnavailable
from holdfast.sandbox import cleanup, runtimes
from holdfast.sandbox.base import Isolation, Listeners, Probe, Standing, Usage
from holdfast.sandbox.cleanup import bare_command
from holdfast.sandbox.inside import archive, frames, relay
from holdfast.sandbox.namespace import cgroups, view
from holdfast.sandbox.probes import try_out
from holdfast.sandbox.spec import Spec
from holdfast.sandbox.state import HostFolder

_READY_LIMIT = 60.0  # that runsc ended is seen at once; this is for a machine under load
_OWN_THREADS = 256  # what runsc itself needs, beside the sandbox's processes
_OWN_MEMORY = 96 << 20
_PLATFORMS = ("systrap", "ptrace")  # the faster first
_TO_LAY_OVER = ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"]
"""What mounting a snapshot takes; its kernel acts with these rights on the layer above it."""


@dataclass(slots=True)
class GvisorInstance:
    """A running container."""

    id: str
    channel: socket.socket
    bundle: Path
    root: Path
    cgroup: cgroups.Cgroup | None
    folder: HostFolder
    process: subprocess.Popen[bytes] | None = None
    relayed: bool = False
    listeners: Listeners | None = None
    upper: int | None = None
    _gone: bool = field(default=False)
    _last: Usage = field(default=Usage())

    def usage(self, *, thorough: bool = False) -> Usage:
        if self._gone or self.cgroup is None:
            return self._last
        return self.cgroup.usage()

    def restart_peak(self) -> bool:
        return self.cgroup is not None and not self._gone and self.cgroup.restart_peak()

    def freeze(self) -> bool:
        return False  # only its own agent can read its files, and it would be frozen too

    def thaw(self) -> None:
        """It is never frozen."""

    def kill(self) -> None:
        """Kill everything of the container that runs on the host."""
        for path in self.cgroup.paths[:1] if self.cgroup else ():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for pid in Path(path, "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    async def destroy(self) -> None:
        if self._gone:
            return
        self._gone = True
        self.channel.close()
        self.kill()
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)
        if self.cgroup is not None:
            self._last = self.cgroup.usage()
            self.cgroup.close()
        for path in self.cgroup.paths if self.cgroup else ():
            await asyncio.to_thread(cleanup.remove_cgroup, path, wait=5.0)
        await asyncio.to_thread(shutil.rmtree, self.bundle, ignore_errors=True)
        await asyncio.to_thread(_forget_container, self.root, self.id)
        self.folder.forget(self.id)


class GvisorBackend:
    """gVisor, through the `runsc` on the PATH."""

    name = "gvisor"
    isolation = Isolation.GVISOR
    refill_after = 0.2

    def __init__(self, folder: HostFolder, state: Path, *, packages: tuple[str, ...]) -> None:
        self._folder, self._state, self._packages = folder, state, packages
        self._home = folder.path / "gvisor"
        self._runtimes: view.Runtimes | None = None
        self._cgroups: cgroups.Cgroups | None = None
        self._platform = _PLATFORMS[0]
        self._preparing = threading.Lock()

    async def probe(self) -> Probe:
        if shutil.which("runsc") is None:
            return Probe(Standing.ABSENT, "runsc is not installed (on Debian: make gvisor)")
        if os.geteuid() != 0:
            return Probe(Standing.UNUSABLE, "runsc is used as root only")
        reasons: list[str] = []
        for platform in _PLATFORMS:
            found = await try_out(functools.partial(self._create, platform))
            if found.works:
                self._platform = platform
                return Probe(Standing.WORKS, f"works, on the {platform} platform")
            reasons.append(f"{platform}: {found.reason}")
        return Probe(Standing.FAILED, "; ".join(reasons))

    async def create(self, id: str, spec: Spec) -> GvisorInstance:
        return await self._create(self._platform, id, spec)

    async def _create(self, platform: str, id: str, spec: Spec) -> GvisorInstance:
        if shutil.which("runsc") is None or os.geteuid() != 0:
            raise SandboxUnavailable(
                "gVisor needs root and runsc", hint="`make gvisor` installs it on Debian"
            )
        if self._runtimes is None:
            await asyncio.to_thread(self._prepare_once)
        group = self._make_cgroup(id, spec)
        ours, theirs = socket.socketpair()
        bundle = self._home / "bundles" / id
        instance = GvisorInstance(id, ours, bundle, self._home / "root", group, self._folder)
        instance.relayed = True  # without a network, what is tried
        record = {"id": id, "backend": self.name, "cgroups": group.paths if group else []}
        self._folder.record(id, record)
        try:
            bundle.mkdir(parents=True)
            (bundle / "config.json").write_text(json.dumps(self._config(id, spec)))
            instance.process = self._run(platform, id, bundle, theirs, group)
            theirs.close()  # now that only runsc has it, its end is seen at once
            await _ready(instance)
        except BaseException:
            await asyncio.shield(instance.destroy())
            raise
        finally:
            theirs.close()
        return instance

    def _prepare_once(self) -> None:
        """However many sandboxes are first: one prepares, the others wait for it."""
        with self._preparing:
            if self._runtimes is None:
                self._runtimes = self._prepare()

    def _prepare(self) -> view.Runtimes:
        """The root folder every container starts from, whole or not at all; and their cgroup."""
        found = runtimes.find(self._state, self._packages)
        draft = self._home / "skeleton.draft"
        if draft.exists():
            shutil.rmtree(draft)  # of a try that failed half-way
        view.standalone(draft, found, (view.UID, view.GID))
        draft.rename(self._home / "skeleton")
        # runsc's helpers are nobody, and must reach it.
        for folder in (self._folder.path, self._home):
            folder.chmod(0o711)
        (self._home / "root").mkdir(exist_ok=True)
        self._cgroups = cgroups.find(f"holdfast-{self._folder.name}")
        known = self._folder.path / "cgroups.json"
        roots: list[str] = json.loads(known.read_text()) if known.is_file() else []
        self._folder.write("cgroups.json", [*{*roots, *self._cgroups.roots}])
        return found

    def _make_cgroup(self, id: str, spec: Spec) -> cgroups.Cgroup | None:
        if self._cgroups is None or not self._cgroups.parents:
            return None
        return self._cgroups.make(
            id, spec.limits, extra_memory=_OWN_MEMORY, extra_processes=_OWN_THREADS
        )

    def _config(self, id: str, spec: Spec) -> dict[str, Any]:
        assert self._runtimes is not None
        ports = ",".join(str(port) for port in spec.network.ports)
        words = bare_command(
            view.inside_python(self._runtimes),
            "/lib-holdfast",
            "holdfast.sandbox.inside.standalone",
            "start",
            ports,
            archive.LAYERED if spec.layers else "",
            relay.WATCHED,
            *sorted(view.python_paths(self._runtimes)),
        )
        # Of the sandbox's own kernel, and given up before anything untrusted runs.
        capabilities = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE"]
        capabilities += ["CAP_NET_ADMIN", "CAP_NET_RAW"]  # to see what is tried
        if spec.layers:
            capabilities += _TO_LAY_OVER
        sets = ("bounding", "effective", "permitted")
        files = {"type": "RLIMIT_NOFILE", "hard": spec.limits.open_files}
        processes = {"type": "RLIMIT_NPROC", "hard": spec.limits.pids}
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": words,
                "env": [f"{name}={value}" for name, value in view.LOCALE.items()],
                "cwd": "/",
                "capabilities": dict.fromkeys(sets, capabilities),
                "noNewPrivileges": True,
                "rlimits": [{**limit, "soft": limit["hard"]} for limit in (files, processes)],
            },
            "root": {"path": str(self._home / "skeleton"), "readonly": True},
            "hostname": id.lower().replace("_", "-"),
            "mounts": self._mounts(spec),
            "linux": {
                "namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")]
            },
        }

    def _mounts(self, spec: Spec) -> list[dict[str, Any]]:
        found = self._runtimes
        assert found is not None
        library = str(Path(__file__).parent)
        mounts = [_mount("/proc", "proc"), _mount("/dev", "tmpfs"), _bind("/usr", "/usr")]
        if Path("/usr/local").is_dir():
            mounts.append(_mount("/usr/local", "tmpfs", "ro"))
            if found.system_packages:
                mounts.append(_bind(found.packages, f"/usr/local/{found.system_packages}"))
        if found.python_prefix != "/usr":
            inside = view.inside_prefix(found)
            mounts.append(_bind(found.python_prefix, inside))
            mounts.append(_bind(found.packages, f"{inside}/{found.python_packages}"))
        if found.node_prefix is not None:
            mounts.append(_bind(found.node_prefix, "/opt/holdfast/node"))
        mounts += [_bind(f"/{name}", f"/{name}") for name in view.own_os_folders()]
        mounts.append(_bind(library, "/lib-holdfast"))
        own = f"size={spec.limits.disk},mode=755,uid={view.UID},gid={view.GID}"
        shared = f"size={spec.limits.disk},mode=1777"
        mounts.append(_mount("/dev/shm", "tmpfs", *shared.split(",")))  # noqa: S108
        if spec.layers:
            mounts.append(_bind(spec.layers[0], archive.LAYER))
            mounts.append(_mount(archive.UPPER, "tmpfs", f"size={spec.limits.disk}"))
            return mounts
        mounts += [_mount(path, "tmpfs", *own.split(",")) for path in (view.WORKSPACE, view.HOME)]
        mounts.append(_mount("/tmp", "tmpfs", *shared.split(",")))  # noqa: S108
        return mounts

    def _run(
        self,
        platform: str,
        id: str,
        bundle: Path,
        channel: socket.socket,
        group: cgroups.Cgroup | None,
    ) -> subprocess.Popen[bytes]:
        """Start runsc in the cgroup, so that all it starts is in it too."""
        runsc = [
            "runsc",
            f"--root={self._home / 'root'}",
            f"--platform={platform}",
            "--network=none",
            "--net-raw",
            "--overlay2=none",
            "--ignore-cgroups",
            "run",
            f"--bundle={bundle}",
            id,
        ]
        join = 'for f in $0; do echo 0 > "$f/cgroup.procs"; done; exec "$@"'
        words = ["/bin/sh", "-c", join, " ".join(group.paths if group else ()), *runsc]
        with (bundle / "errors").open("wb") as errors:
            return subprocess.Popen(
                words,
                stdin=channel.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                start_new_session=True,
            )

    def close(self) -> None:
        """Nothing runs but the containers, which end with their channels."""


def _mount(place: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": place, "type": kind, "source": kind, "options": list(options)}


def _bind(source: str, place: str) -> dict[str, Any]:
    options = ["bind", "ro", "nosuid", "nodev"]
    return {"destination": place, "type": "bind", "source": source, "options": options}


async def _ready(instance: GvisorInstance) -> None:
    """Wait for the agent's first frame."""
    loop = asyncio.get_running_loop()
    instance.channel.setblocking(False)
    decoder = frames.Decoder()
    try:
        async with asyncio.timeout(_READY_LIMIT):
            while True:
                data = await loop.sock_recv(instance.channel, 4096)
                if not data:
                    break
                if decoder.feed(data):
                    return
    except TimeoutError:
        raise SandboxError(f"{instance.id} was not ready within {_READY_LIMIT:.0f} s") from None
    told = (instance.bundle / "errors").read_text("utf-8", "replace").strip()
    raise SandboxError(f"runsc ended while it was set up: {told[-500:] or 'no reason given'}")


def _forget_container(root: Path, id: str) -> None:
    """Remove what runsc keeps of a container that was killed."""
    for path in root.glob(f"{id}*"):
        path.unlink(missing_ok=True)
    for path in root.glob(f"*{id}*"):
        path.unlink(missing_ok=True)
