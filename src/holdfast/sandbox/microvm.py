"""The `microvm` backend: a virtual machine per sandbox, by PyPI's `microsandbox`. Experimental.

Experimental because it could not be run to its end where it was written: it needs hardware KVM.
The probe boots a guest, runs a program in it and tells the truth; `auto` takes this backend
only where that has worked. Installing the package says little about the machine, so a guest that
does not boot is a failure (which `auto` stops at) only where one has booted before; elsewhere the
machine can't run it, and `auto` warns and goes on. Limits inside the guest are the machine's own
(memory, processors); there is no network, and no snapshots yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError, SandboxUnavailable
from holdfast.sandbox import runtimes
from holdfast.sandbox.base import Isolation, Listeners, Probe, Standing, Usage
from holdfast.sandbox.cleanup import bare_command
from holdfast.sandbox.namespace import view
from holdfast.sandbox.probes import try_out
from holdfast.sandbox.spec import Spec
from holdfast.sandbox.state import HostFolder

_BOOT_LIMIT = 60.0
_CHUNK = 64 * 1024


@dataclass(slots=True)
class MicrovmInstance:
    """A running machine, its agent's input and output carried over a socket pair."""

    id: str
    channel: socket.socket
    machine: Any
    folder: HostFolder
    carrying: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    listeners: Listeners | None = None
    relayed: bool = False
    upper: int | None = None
    _gone: bool = field(default=False)

    def usage(self, *, thorough: bool = False) -> Usage:
        return Usage()

    def restart_peak(self) -> bool:
        return False

    def freeze(self) -> bool:
        return False

    def thaw(self) -> None:
        """It is never frozen from here."""

    def kill(self) -> None:
        """Done by `destroy`: machines are ended by a call that must be waited for."""

    async def destroy(self) -> None:
        if self._gone:
            return
        self._gone = True
        self.channel.close()
        for task in self.carrying:
            task.cancel()
        if self.carrying:
            await asyncio.wait(self.carrying)
        await self.machine.kill()
        await self.machine.remove()
        self.folder.forget(self.id)


class MicrovmBackend:
    """microsandbox: libkrun, a kernel for each sandbox."""

    name = "microvm"
    isolation = Isolation.MICROVM
    refill_after = 0.2

    def __init__(self, folder: HostFolder, state: Path, *, packages: tuple[str, ...]) -> None:
        self._folder, self._state, self._packages = folder, state, packages
        self._runtimes: view.Runtimes | None = None

    async def probe(self) -> Probe:
        missing = self._missing()
        if missing is not None:
            return missing
        booted = self._state / "microvm.booted"
        # A guest that fails to boot takes its time to say so: once per boot of the host is enough.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        known = self._state / f"microvm-{boot}.failed"
        if known.is_file() and not booted.is_file():
            return Probe(Standing.UNUSABLE, known.read_text())
        warnings = ("experimental: few have run this backend yet",)
        found = await try_out(self.create, warnings, _BOOT_LIMIT)
        if found.works:
            booted.touch()
            return found
        reason = f"a guest did not boot: {found.reason}"
        if booted.is_file():
            return Probe(Standing.FAILED, reason)
        known.write_text(reason)
        return Probe(Standing.UNUSABLE, reason)

    @staticmethod
    def _missing() -> Probe | None:
        if find_spec("microsandbox") is None:
            why = "microsandbox is not installed (pip install microsandbox)"
            return Probe(Standing.ABSENT, why)
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return Probe(Standing.UNUSABLE, "/dev/kvm is not there, or not for this user")
        return None

    async def create(self, id: str, spec: Spec) -> MicrovmInstance:
        missing = self._missing()
        if missing is not None:
            raise SandboxUnavailable(missing.reason)
        if spec.layers or spec.network.allow:
            raise SandboxError(
                "the microvm backend has neither snapshots nor network yet",
                hint="use the gvisor or namespace backend for these",
            )
        if self._runtimes is None:
            self._runtimes = await asyncio.to_thread(self._prepare)
        microsandbox = import_module("microsandbox")
        self._folder.record(id, {"id": id, "backend": self.name, "cgroups": []})
        try:
            machine = await microsandbox.Sandbox.create(
                id.lower().replace("_", "-"),
                image=microsandbox.Image.bind(str(self._folder.path / "microvm")),
                cpus=max(1, round(spec.limits.cpus)),
                memory=spec.limits.memory >> 20,
                volumes=self._volumes(microsandbox),
                network=microsandbox.Network.none(),
                ephemeral=True,
            )
        except microsandbox.MicrosandboxError as error:
            self._folder.forget(id)
            raise SandboxError(f"the machine did not start: {error}") from error
        ours, theirs = socket.socketpair()
        instance = MicrovmInstance(id, ours, machine, self._folder)
        try:
            words = self._agent()
            agent = await machine.exec_stream(words[0], words[1:], env=view.LOCALE)
            instance.carrying = _carry(agent, theirs)
        except BaseException:
            await asyncio.shield(instance.destroy())
            raise
        return instance

    def _prepare(self) -> view.Runtimes:
        found = runtimes.find(self._state, self._packages)
        owner = (os.geteuid(), os.getegid())
        view.standalone(self._folder.path / "microvm", found, owner)
        return found

    def _volumes(self, microsandbox: Any) -> dict[str, Any]:
        found = self._runtimes
        assert found is not None
        places = {"/usr": "/usr", "/lib-holdfast": str(Path(__file__).parent)}
        if found.python_prefix != "/usr":
            inside = view.inside_prefix(found)
            places[inside] = found.python_prefix
            places[f"{inside}/{found.python_packages}"] = found.packages
        if found.node_prefix is not None:
            places["/opt/holdfast/node"] = found.node_prefix
        bind = microsandbox.Volume.bind
        return {place: bind(source, readonly=True) for place, source in places.items()}

    def _agent(self) -> list[str]:
        assert self._runtimes is not None
        return bare_command(
            view.inside_python(self._runtimes),
            "/lib-holdfast",
            "holdfast.sandbox.inside.standalone",
            "start",
            "",
            "",
            "",
            *sorted(view.python_paths(self._runtimes)),
        )

    def close(self) -> None:
        """Machines are ephemeral: they end with this process."""


def _carry(agent: Any, sock: socket.socket) -> list[asyncio.Task[None]]:
    """Carry bytes between the agent's standard streams and our end of its channel."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    sink = agent.take_stdin()

    async def there() -> None:
        while data := await loop.sock_recv(sock, _CHUNK):
            await sink.write(data)
        await sink.close()

    async def back() -> None:
        with contextlib.closing(sock):
            async for event in agent:
                if event.data:
                    await loop.sock_sendall(sock, event.data)

    return [loop.create_task(there()), loop.create_task(back())]
