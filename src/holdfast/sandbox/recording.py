"""Recording: what sandboxes do, told to observers; one of them writes it to the store.

An observer's methods are called on the event loop, in order, and must not block; one that raises
breaks the operation it observes, since what can't be recorded must not go unnoticed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypedDict

from holdfast import session
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.sandbox.settings import load
from holdfast.session import current_step
from holdfast.store import opener
from holdfast.store.sandboxes import SandboxWriter

_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)


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


class StoreObserver:
    """Writes to the store that runs and model calls are in; its thread does, here nothing blocks.

    That is the store this process has open when a sandbox is made, or the one HOLDFAST_STORE
    names; where there is neither, nothing is recorded. What happens later to a sandbox goes where
    its beginning went, also if that store was closed meanwhile.
    """

    def __init__(self) -> None:
        self._writers: dict[str, SandboxWriter] = {}
        self._writer_of: dict[str, SandboxWriter] = {}
        """Of each sandbox, and of each command that runs: where its beginning went."""
        self._told_of_close: set[str] = set()
        self._lock = threading.Lock()  # loops of several threads may have sandboxes
        self._pid = os.getpid()

    def sandbox_created(self, record: SandboxRecord) -> None:
        if (writer := self._begin(record.id)) is not None:
            writer.add_sandbox(record)

    def command_started(self, record: CommandRecord) -> None:
        if (writer := self._begin(record.id, record.sandbox_id)) is not None:
            writer.add_command(record)

    def command_ended(self, record: CommandRecord) -> None:
        if (writer := self._writer_of.get(record.id)) is not None:
            writer.end_command(record)
            self._end(record.id)

    def egress(self, record: EgressRecord) -> None:
        if (writer := self._writer_of.get(record.sandbox_id)) is not None:
            writer.add_egress(record)

    def sandbox_stopped(self, record: SandboxRecord) -> None:
        if (writer := self._writer_of.get(record.id)) is not None:
            writer.stop_sandbox(record)
            self._end(record.id)

    def flush(self) -> None:
        """Wait until all that happened so far is in the store."""
        for writer in list(self._writers.values()):
            writer.flush()

    def close(self) -> None:
        """Write everything, and let go of the stores."""
        with self._lock:
            writers = list(self._writers.values())
            self._writers.clear()
            self._writer_of.clear()
        if self._pid == os.getpid():  # a forked child has no thread that could write
            for writer in writers:
                writer.close()

    def _begin(self, id: str, sandbox_id: str = "") -> SandboxWriter | None:
        """Where to write of something new: where its sandbox is, else to the store of now."""
        with self._lock:
            writer = self._writer_of.get(sandbox_id) or self._current()
            if writer is not None:
                self._writer_of[id] = writer
            return writer

    def _end(self, id: str) -> None:
        with self._lock:
            self._writer_of.pop(id, None)

    def _current(self) -> SandboxWriter | None:
        opened = session.opened_store()
        name = opened or (session.default_store() if os.environ.get("HOLDFAST_STORE") else None)
        if name is None or self._pid != os.getpid():
            return None
        store = opener.absolute(name)
        if store not in self._writers:
            self._writers[store] = opener.sandbox_writer(store, keep=load().keep_seconds)
        if opened is not None and store not in self._told_of_close:
            self._told_of_close.add(store)
            session.on_store_close(opened, lambda: self._leave(store))
        return self._writers[store]

    async def _leave(self, store: str) -> None:
        """The store is closed: so is its writer, unless something it began has yet to end."""
        with self._lock:
            self._told_of_close.discard(store)
            writer = self._writers.get(store)
            if writer is None:
                return
            over = writer not in self._writer_of.values()
            if over:
                del self._writers[store]
        await asyncio.to_thread(writer.close if over else writer.flush)


class OfStep(TypedDict):
    """The fields of a record that say which step it belongs to."""

    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None


def of_step() -> OfStep:
    """The step that is executing, as fields of a record."""
    step = current_step()
    if step is None:
        return OfStep(run_id=None, workflow=None, step=None, step_key=None, attempt=None)
    return OfStep(
        run_id=step.run_id,
        workflow=step.workflow,
        step=step.step,
        step_key=step.key,
        attempt=step.attempt,
    )


def shown(source: str) -> str:
    """A source as it may be written down: without the user and password of an address."""
    return _CREDENTIALS.sub(r"\1", source)
