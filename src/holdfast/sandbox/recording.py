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
from dataclasses import asdict, dataclass, field
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
        self._books: dict[Path, _Book] = {}
        self._where: dict[str, _Book] = {}
        """The book in which each sandbox, and each command that runs, was begun."""
        self._lock = threading.Lock()  # loops of several threads may have sandboxes
        self._pid = os.getpid()

    def sandbox_created(self, record: SandboxRecord) -> None:
        book = self._begin(record.id)
        if book is not None:
            book.writer.add_sandbox(record)

    def command_started(self, record: CommandRecord) -> None:
        book = self._begin(record.id, with_sandbox=record.sandbox_id)
        if book is not None:
            book.writer.add_command(record)

    def command_ended(self, record: CommandRecord) -> None:
        book = self._where.get(record.id)
        if book is not None:
            book.writer.end_command(record)
            self._end(record.id, book)

    def egress(self, record: EgressRecord) -> None:
        book = self._where.get(record.sandbox_id)
        if book is not None:
            book.writer.add_egress(record)

    def sandbox_stopped(self, record: SandboxRecord) -> None:
        book = self._where.get(record.id)
        if book is not None:
            book.writer.stop_sandbox(record)
            self._end(record.id, book)

    def flush(self) -> None:
        """Wait until all that happened so far is in the store."""
        for book in list(self._books.values()):
            book.writer.flush()

    def close(self) -> None:
        """Write everything, and let go of the stores."""
        with self._lock:
            books = list(self._books.values())
            self._books.clear()
            self._where.clear()
        if self._pid == os.getpid():  # a forked child has no thread that could write
            for book in books:
                book.writer.close()

    def _begin(self, id: str, *, with_sandbox: str | None = None) -> _Book | None:
        with self._lock:
            book = self._where.get(with_sandbox) if with_sandbox is not None else None
            book = book or self._book()
            if book is not None:
                self._where[id] = book
                book.open.add(id)
            return book

    def _book(self) -> _Book | None:
        """Where to write now, if anywhere."""
        opened = session.opened_store()
        path = opened or (session.default_store() if os.environ.get("HOLDFAST_STORE") else None)
        if path is None or self._pid != os.getpid():
            return None
        path = path.absolute()
        book = self._books.get(path)
        if book is None:
            book = self._books[path] = _Book(opener.sandbox_writer(path, keep=load().keep_seconds))
        if opened is not None and not book.follows:
            book.follows = True
            session.on_store_close(opened, lambda: self._leave(path, book))
        return book

    def _end(self, id: str, book: _Book) -> None:
        with self._lock:
            self._where.pop(id, None)
            book.open.discard(id)

    async def _leave(self, path: Path, book: _Book) -> None:
        """The store is closed: so is its book, unless something in it has yet to end."""
        with self._lock:
            book.follows = False
            over = not book.open
            if over:
                self._books.pop(path, None)
        await asyncio.to_thread(book.writer.close if over else book.writer.flush)


@dataclass(slots=True)
class _Book:
    """The records of one store."""

    writer: SandboxWriter
    open: set[str] = field(default_factory=set[str])
    """What was begun in it and has not ended."""
    follows: bool = False
    """Whether it is told when its store is closed."""


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
