"""Isolated execution of code nobody has read. `Sandbox` is the way in.

sandbox.py     what callers use            commands.py, files.py    what it does inside
command.py, results.py   a command and its end     keeping.py, snapshots.py, packed.py   snapshots
host.py        this process as a host      network.py, spec.py      what may be asked
base.py        the seam to backends        namespace/, gvisor.py, microvm.py
inside/        the agent in each sandbox   egress/                  the way out, host-side
observer.py, recording.py   who is told    registries/              where packages come from
"""

from holdfast.sandbox.base import Isolation
from holdfast.sandbox.command import Command, Output
from holdfast.sandbox.host import Host, default_host
from holdfast.sandbox.network import Host as AllowedHost
from holdfast.sandbox.network import Network
from holdfast.sandbox.observer import JsonLinesObserver, MemoryObserver, Observer
from holdfast.sandbox.recording import StoreObserver
from holdfast.sandbox.results import CommandResult, Ended, FileInfo, Limit
from holdfast.sandbox.sandbox import Sandbox
from holdfast.sandbox.snapshots import Snapshot

__all__ = [
    "AllowedHost",
    "Command",
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
    "Snapshot",
    "StoreObserver",
    "default_host",
]
