"""What a command came to, and what lies in a sandbox's folders."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum


class Ended(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    STOPPED = "stopped"
    """With its sandbox, which was stopped or ended while the command ran."""


class Limit(StrEnum):
    """A limit that was reached while a command ran, though the command ended by itself."""

    DISK = "disk"
    INODES = "inodes"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command."""

    id: str
    argv: tuple[str, ...]
    ended: Ended
    exit_code: int | None
    """None unless it exited by itself."""
    signal: int | None
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    seconds: float
    limits_hit: frozenset[Limit] = frozenset()
    cpu_seconds: float | None = None
    """User and system time, its children's included; None if nobody could tell."""
    peak_memory: int | None = None
    """The most memory that was held while it ran, in bytes; None if nobody could tell."""

    @property
    def ok(self) -> bool:
        """It ended by itself with exit code 0."""
        return self.ended is Ended.EXITED and self.exit_code == 0

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are no UTF-8 are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are no UTF-8 are replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def __str__(self) -> str:
        how = {
            Ended.EXITED: f"exited with {self.exit_code}",
            Ended.SIGNALLED: f"killed by signal {self.signal}",
        }.get(self.ended, self.ended.replace("_", " "))
        return f"{shlex.join(self.argv)}: {how} after {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry of a folder in a sandbox; links are told as links, not followed."""

    path: str
    type: str
    """`file`, `dir`, `link` or `other`."""
    size: int
    mode: int
    modified: float

    @property
    def modified_at(self) -> datetime:
        return datetime.fromtimestamp(self.modified, UTC)
