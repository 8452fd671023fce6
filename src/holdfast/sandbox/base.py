"""The seam: what a backend must give so that everything else works over it.

A backend makes instances; an instance is a sandbox with the agent in it, reached through one
socket. Commands, files and streams are the agent's protocol, the same for every backend; a
backend answers only for isolation, limits and complete removal.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

from holdfast.sandbox.spec import Spec


class Isolation(IntEnum):
    """What stands between the sandbox and the host, weakest first."""

    NAMESPACE = 1
    GVISOR = 2
    MICROVM = 3

    @property
    def words(self) -> str:
        """In plain words."""
        return {
            Isolation.NAMESPACE: "shares the host's kernel, behind namespaces and a filter",
            Isolation.GVISOR: "a kernel of its own in user space; few host system calls",
            Isolation.MICROVM: "a virtual machine with a kernel of its own",
        }[self]


class Standing(StrEnum):
    """What a probe found; it decides what `auto` does with the backend."""

    WORKS = "works"
    ABSENT = "absent"
    """Not installed: `auto` goes on to the next."""
    UNUSABLE = "unusable"
    """Installed, but this user or machine can't run it: `auto` goes on, with a warning."""
    FAILED = "failed"
    """It should work here, and did not: `auto` stops rather than give less than was meant."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a backend works here, tried for real."""

    standing: Standing
    reason: str
    """Why not, or what it found."""
    warnings: tuple[str, ...] = ()
    """What it can't enforce here."""

    @property
    def works(self) -> bool:
        return self.standing is Standing.WORKS


@dataclass(frozen=True, slots=True)
class Usage:
    """What the host's kernel counted of a sandbox, as far as the backend can tell."""

    memory_kills: int = 0
    process_refusals: int = 0
    cpu_seconds: float | None = None
    """User and system time of all its processes so far; None if the kernel does not tell."""
    peak_memory: int | None = None
    """The most it held at once, files included, since `Instance.restart_peak`; in bytes."""
    disk_used: int | None = None
    """Bytes of its files now."""


@dataclass(slots=True)
class Listeners:
    """Sockets in the sandbox's network that the host serves."""

    names: socket.socket | None = None
    """Where names are asked for; None where there is no network, and nobody answers."""
    connections: dict[int, socket.socket] = field(default_factory=dict[int, socket.socket])
    watch: tuple[socket.socket, ...] = ()
    """See the first packet of attempts that no listener meets, where the kernel lets us."""

    def close(self) -> None:
        if self.names is not None:
            self.names.close()
        for each in (*self.watch, *self.connections.values()):
            each.close()


class Instance(Protocol):
    """One running sandbox, as its backend knows it."""

    @property
    def id(self) -> str: ...

    @property
    def channel(self) -> socket.socket:
        """Connected to the agent; closing it ends the sandbox."""
        ...

    @property
    def listeners(self) -> Listeners | None:
        """The sockets of its network, if the host can hold them."""
        ...

    @property
    def relayed(self) -> bool:
        """Whether its network is carried over the channel instead."""
        ...

    @property
    def upper(self) -> int | None:
        """A descriptor of the folder with what the sandbox changed, if there is one."""
        ...

    def usage(self, *, thorough: bool = False) -> Usage:
        """What the kernel counts; `thorough` also asks what takes a moment to find out.

        Still answered once it is destroyed: with what was so at the end.
        """
        ...

    def restart_peak(self) -> bool:
        """Count the highest memory anew from now on; whether that is possible."""
        ...

    def freeze(self) -> bool:
        """Stop every process of the sandbox from outside, whatever it does; False if that can't be.

        May take a moment: not for an event loop.
        """
        ...

    def thaw(self) -> None:
        """Let them go on."""
        ...

    def kill(self) -> None:
        """End every process of the sandbox, at once."""
        ...

    async def destroy(self) -> None:
        """Kill, and remove everything outside; complete when it returns, and repeatable."""
        ...


class Backend(Protocol):
    """A way to make sandboxes."""

    @property
    def name(self) -> str: ...

    @property
    def isolation(self) -> Isolation: ...

    @property
    def refill_after(self) -> float:
        """Seconds that the pool leaves to the sandbox just taken before it makes another: where
        that takes a processor for long, it would slow down the first command."""
        ...

    async def probe(self) -> Probe:
        """Try it: make a sandbox, run something in it, remove it."""
        ...

    async def create(self, id: str, spec: Spec) -> Instance:
        """Make a sandbox; raises SandboxError with the reason where it can't."""
        ...

    def close(self) -> None:
        """End what the backend runs in the background."""
        ...
