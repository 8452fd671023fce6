"""Sandboxes, their commands and their attempts to reach the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

PROCESS_DIED = "process died"
"""How a sandbox or a command ended whose process was killed before it could say."""


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
    workflow: str | None = None
    step: str | None = None
    """The name of the step it was made in."""
    step_key: str | None = None
    """That step's place in its run."""
    attempt: int | None = None
    stopped_at: datetime | None = None
    stopped_because: str | None = None
    cpu_seconds: float | None = None
    """What it used, known once it has stopped: None where nobody could tell."""
    peak_memory: int | None = None
    """The most it held at once, files included; to be seen beside `memory`."""
    disk_used: int | None = None
    """Bytes of its files at the end; to be seen beside `disk`."""

    @property
    def live(self) -> bool:
        return self.stopped_at is None

    def as_json(self) -> dict[str, Any]:
        """The sandbox for API, pages and `--json`; times are seconds since 1970."""
        return _plain(asdict(self))


MEANT_TO_FAIL = "try_hollow"
"""The name of a program that checks tests against a hollow solution, and is right if they fail."""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command in a sandbox; the fields from `ended_at` on are filled once it has ended."""

    id: str
    sandbox_id: str
    argv: tuple[str, ...]
    cwd: str
    started_at: datetime
    run_id: str | None = None
    """The run it was started in: a sandbox may serve several steps, each its own commands."""
    workflow: str | None = None
    step: str | None = None
    step_key: str | None = None
    attempt: int | None = None
    ended_at: datetime | None = None
    ended: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    limits_hit: tuple[str, ...] = ()
    stdout_bytes: int = 0
    """All that it wrote, as far as it was taken."""
    stderr_bytes: int = 0
    stdout_tail: str = ""
    """The end of what it wrote, as text."""
    stderr_tail: str = ""
    stdout_cut: int = 0
    """Bytes before the tail that are not kept here."""
    stderr_cut: int = 0
    cpu_seconds: float | None = None
    """User and system time, its children's included; None where nobody could tell."""
    peak_memory: int | None = None
    """The most memory that was held while it ran, in bytes."""

    def as_json(self) -> dict[str, Any]:
        """The command for API, pages and `--json`, with the end of what it wrote."""
        found = _plain(asdict(self))
        found["stdout"], found["stderr"] = found.pop("stdout_tail"), found.pop("stderr_tail")
        return found

    @property
    def meant_to_fail(self) -> bool:
        """Whether it is right for it to fail."""
        return any(f"/{MEANT_TO_FAIL}." in word for word in self.argv[:2])

    @property
    def went_wrong(self) -> bool:
        """Whether it ended otherwise than it was meant to."""
        failed = self.ended is not None and (self.ended != "exited" or self.exit_code != 0)
        return self.ended is not None and failed != self.meant_to_fail


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
    run_id: str | None = None
    """The run its sandbox was made in."""

    def as_json(self) -> dict[str, Any]:
        """The attempt for API, pages and `--json`."""
        return _plain(asdict(self))


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.timestamp() if isinstance(value, datetime) else value
        for name, value in data.items()
    }
