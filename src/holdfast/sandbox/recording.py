"""Puts what sandboxes do into the store that runs and model calls are in.

That is the store this process has open when a sandbox is made, or the one HOLDFAST_STORE names;
where there is neither, nothing is recorded. What happens later to a sandbox goes where its
beginning went, also if that store was closed meanwhile. Writing happens in
the store's thread; here nothing blocks.
"""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import session
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.sandbox.settings import load
from holdfast.store import opener
from holdfast.store.sandboxes import SandboxWriter


class StoreObserver:
    """An observer that writes to this process's store."""

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
