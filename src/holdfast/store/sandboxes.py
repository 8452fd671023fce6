"""The contract of sandbox records: written by the process that has them, read by anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord

PAGE = 100


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    """Which sandboxes to list. Everything given must fit."""

    run_id: str | None = None
    live: bool | None = None
    """True: those that run; False: those that have stopped."""


@dataclass(frozen=True, slots=True)
class SandboxPage:
    """Some sandboxes, newest first, and where the next page begins."""

    sandboxes: list[SandboxRecord]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class CommandPage:
    """Some commands, oldest first, and where the next page begins."""

    commands: list[CommandRecord]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class EgressPage:
    """Some attempts to reach the network, oldest first, and where the next page begins."""

    attempts: list[EgressRecord]
    cursor: int | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many records were dropped."""

    sandboxes: int = 0
    commands: int = 0
    attempts: int = 0

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(
            self.sandboxes + other.sandboxes,
            self.commands + other.commands,
            self.attempts + other.attempts,
        )


class SandboxRecords(Protocol):
    """Questions about sandboxes; what processes left open that died is shown as ended."""

    async def notice_the_dead(self) -> None:
        """Have what processes left open that are gone put down as ended."""
        ...

    async def get(self, id: str) -> SandboxRecord | None: ...
    async def list(
        self, where: SandboxFilter | None = None, *, limit: int = PAGE, cursor: str | None = None
    ) -> SandboxPage:
        """A page of sandboxes, newest first."""
        ...

    async def command(self, id: str) -> CommandRecord | None: ...
    async def commands(
        self,
        *,
        sandbox_id: str | None = None,
        run_id: str | None = None,
        step_key: str | None = None,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> CommandPage:
        """Commands of a sandbox, of a run, or of one of its steps, oldest first."""
        ...

    async def egress(
        self,
        *,
        sandbox_id: str | None = None,
        run_id: str | None = None,
        limit: int = PAGE,
        cursor: int | None = None,
    ) -> EgressPage:
        """Attempts to reach the network, of a sandbox or of all of a run's, oldest first."""
        ...

    async def close(self) -> None: ...


class SandboxWriter(Protocol):
    """One process's records of its sandboxes. Nothing blocks but `flush` and `close`.

    Records are written in the order they were given, and tried again where the store can't take
    them; what can't be recorded must not go unnoticed, so too much that waits is refused.
    """

    def add_sandbox(self, record: SandboxRecord) -> None: ...
    def stop_sandbox(self, record: SandboxRecord) -> None: ...
    def add_command(self, record: CommandRecord) -> None: ...
    def end_command(self, record: CommandRecord) -> None: ...
    def add_egress(self, record: EgressRecord) -> None: ...

    def flush(self) -> None:
        """Wait until everything is in the store; raises StoreError if it can't be written."""
        ...

    def close(self) -> None:
        """Write everything, and let go; raises StoreError for what is lost."""
        ...
