"""Who wants to know: the interface through which sandboxes are put on record.

Methods are called on the event loop, in order, and must not block; an observer that raises
breaks the operation it observes, since what can't be recorded must not go unnoticed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord


class Observer(Protocol):
    """Told of every sandbox, command and connection attempt."""

    def sandbox_created(self, record: SandboxRecord) -> None: ...

    def command_started(self, record: CommandRecord) -> None: ...

    def command_ended(self, record: CommandRecord) -> None: ...

    def egress(self, record: EgressRecord) -> None: ...

    def sandbox_stopped(self, record: SandboxRecord) -> None: ...


class MemoryObserver:
    """Keeps everything in lists, latest state last: for tests and small programs."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.commands: dict[str, CommandRecord] = {}
        self.attempts: list[EgressRecord] = []

    def sandbox_created(self, record: SandboxRecord) -> None:
        self.sandboxes[record.id] = record

    def command_started(self, record: CommandRecord) -> None:
        self.commands[record.id] = record

    def command_ended(self, record: CommandRecord) -> None:
        self.commands[record.id] = record

    def egress(self, record: EgressRecord) -> None:
        self.attempts.append(record)

    def sandbox_stopped(self, record: SandboxRecord) -> None:
        self.sandboxes[record.id] = record


class JsonLinesObserver:
    """Appends a line per event to a file."""

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - kept open

    def close(self) -> None:
        self._file.close()

    def sandbox_created(self, record: SandboxRecord) -> None:
        self._write("sandbox_created", record)

    def command_started(self, record: CommandRecord) -> None:
        self._write("command_started", record)

    def command_ended(self, record: CommandRecord) -> None:
        self._write("command_ended", record)

    def egress(self, record: EgressRecord) -> None:
        self._write("egress", record)

    def sandbox_stopped(self, record: SandboxRecord) -> None:
        self._write("sandbox_stopped", record)

    def _write(self, event: str, record: SandboxRecord | CommandRecord | EgressRecord) -> None:
        line = {"event": event, **asdict(record)}
        self._file.write(json.dumps(line, default=_plain) + "\n")
        self._file.flush()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)
