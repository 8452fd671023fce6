"""Sandboxes, their commands and their attempts to reach the network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """A sandbox: what it was given, who made it, and, once it has stopped, why."""

    id: str
    backend: str
    isolation: str
    """What separates it from the host, in plain words."""
    runtime: str
    created_at: datetime
    timeout: float
    cpus: float
    memory: int
    disk: int
    pids: int
    network: tuple[str, ...]
    """The hosts it may reach, as `name:port`; empty for none."""
    source: str | None
    run_id: str | None = None
    step: str | None = None
    stopped_at: datetime | None = None
    stopped_because: str | None = None


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command in a sandbox; the fields after `started_at` are filled once it has ended."""

    id: str
    sandbox_id: str
    argv: tuple[str, ...]
    cwd: str
    started_at: datetime
    ended: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """An attempt of a sandbox to reach the network, allowed or refused."""

    sandbox_id: str
    at: datetime
    host: str
    port: int | None
    allowed: bool
    reason: str
    address: str | None = None
    sent: int = 0
    received: int = 0
