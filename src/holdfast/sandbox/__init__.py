"""Isolated execution of code nobody has read. `Sandbox` is the way in.

sandbox.py     what callers use            commands.py, files.py    what it does inside
command.py, results.py   a command and its end     snapshots.py   snapshots
host.py        this process as a host      network.py, spec.py      what may be asked
base.py        the seam to backends        namespace/, gvisor.py, microvm.py
inside/        the agent in each sandbox   egress/                  the way out, host-side
observer.py, recording.py   who is told    registries/              where packages come from
"""

from typing import TYPE_CHECKING

from holdfast.errors import (
    CommandNotStarted,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
    SourceError,
)
from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.sandbox.base import Isolation
    from holdfast.sandbox.command import Command, Output
    from holdfast.sandbox.host import Host, default_host
    from holdfast.sandbox.network import AllowedHost, Network
    from holdfast.sandbox.observer import JsonLinesObserver, MemoryObserver, Observer
    from holdfast.sandbox.recording import StoreObserver
    from holdfast.sandbox.results import CommandResult, Ended, FileInfo, Limit
    from holdfast.sandbox.sandbox import Sandbox
    from holdfast.sandbox.snapshots import Snapshot

__all__ = [
    "AllowedHost",
    "Command",
    "CommandNotStarted",
    "CommandResult",
    "Ended",
    "FileInfo",
    "Host",
    "Isolation",
    "JsonLinesObserver",
    "Limit",
    "MemoryObserver",
    "Network",
    "Observer",
    "Output",
    "Sandbox",
    "SandboxError",
    "SandboxFileError",
    "SandboxGone",
    "SandboxUnavailable",
    "Snapshot",
    "SourceError",
    "StoreObserver",
    "default_host",
]
__getattr__ = lazily(
    __name__,
    {
        "base": ["Isolation"],
        "command": ["Command", "Output"],
        "host": ["Host", "default_host"],
        "network": ["AllowedHost", "Network"],
        "observer": ["JsonLinesObserver", "MemoryObserver", "Observer"],
        "recording": ["StoreObserver"],
        "results": ["CommandResult", "Ended", "FileInfo", "Limit"],
        "sandbox": ["Sandbox"],
        "snapshots": ["Snapshot"],
    },
)
