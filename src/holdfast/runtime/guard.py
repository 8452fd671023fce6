"""Refusing, in workflow bodies, what would not replay.

Python's audit events tell of sockets, files, threads, subprocesses and blocking sleeps, whatever
library they are made by. While a workflow body runs they raise; at all other times this costs
one comparison. It is a guard against mistakes, not against malice.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from holdfast.errors import NotInWorkflow

_WHAT = {
    "open": "open files",
    "os.listdir": "list folders",
    "os.mkdir": "make folders",
    "os.remove": "remove files",
    "os.rename": "rename files",
    "os.system": "run commands",
    "os.exec": "run commands",
    "os.posix_spawn": "run commands",
    "os.fork": "fork",
    "subprocess.Popen": "run commands",
    "socket.__new__": "use sockets",
    "socket.connect": "use sockets",
    "socket.bind": "use sockets",
    "socket.getaddrinfo": "resolve names",
    "sqlite3.connect": "open databases",
    "_thread.start_new_thread": "start threads",
    "_thread.start_joinable_thread": "start threads",  # what `threading` uses from 3.13 on
    "time.sleep": "block with time.sleep",
}

# Python itself opens files to import modules and to show source lines in tracebacks.
_PYTHONS_OWN = ("importlib.", "importlib._bootstrap", "linecache", "tokenize", "zipimport")

_guarded_threads: set[int] = set()
"""Threads that execute a body at this moment: one, or several where another engine drives them."""
_installed = False


def install() -> None:
    """Begin to watch. Called when the first workflow runs here; watching can't be undone."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)
        _patch_as_completed()
        _tell_of_what_older_pythons_hide()


def enter() -> bool:
    """A workflow body begins to run in this thread; returns what `leave` needs."""
    thread = threading.get_ident()
    before = thread in _guarded_threads
    _guarded_threads.add(thread)
    return before


def leave(before: bool) -> None:
    """The workflow body has stopped."""
    if not before:
        _guarded_threads.discard(threading.get_ident())


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    if not _guarded_threads or event not in _WHAT:
        return
    if threading.get_ident() not in _guarded_threads:
        return
    if event in ("open", "os.listdir") and _by_python_itself():
        return
    raise NotInWorkflow(
        f"a workflow body may not {_WHAT[event]}",
        hint="put it into a @step: its result is recorded, and not done again on replay",
    )


def _by_python_itself() -> bool:
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_PYTHONS_OWN):
            return True
        frame = frame.f_back
    return False


def _tell_of_what_older_pythons_hide() -> None:
    """Python 3.11 and 3.12 have no audit events for threads (3.12 has) and time.sleep."""
    if sys.version_info < (3, 13):
        sleep = time.sleep

        @functools.wraps(sleep)
        def audited_sleep(seconds: float, /) -> None:
            _audit("time.sleep", ())
            sleep(seconds)

        time.sleep = audited_sleep
    if sys.version_info < (3, 12):
        begin = threading.Thread.start

        @functools.wraps(begin)
        def audited_start(self: threading.Thread) -> None:
            _audit("_thread.start_new_thread", ())
            begin(self)

        threading.Thread.start = audited_start


# asyncio.as_completed puts its coroutines into a set before it makes tasks of them, so that the
# order of the tasks, and with it their numbers, would be a matter of memory addresses.

_as_completed: Callable[..., Any] = asyncio.as_completed


def _patch_as_completed() -> None:
    def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
        if threading.get_ident() in _guarded_threads:
            fs = [asyncio.ensure_future(f) for f in dict.fromkeys(fs)]
        return _as_completed(fs, timeout=timeout)

    as_completed.__doc__ = _as_completed.__doc__
    asyncio.as_completed = asyncio.tasks.as_completed = as_completed


def refuse_unordered_tasks(frame: FrameType | None) -> None:
    """Refuse a task made by the unpatched as_completed (imported by name, before us)."""
    for _ in range(3):
        if frame is None or frame.f_globals.get("__name__") != "asyncio.tasks":
            return
        if frame.f_code.co_name in ("as_completed", "_AsCompletedIterator", "<setcomp>"):
            raise NotInWorkflow(
                "this as_completed would make its tasks in a different order on every replay",
                hint="call it as asyncio.as_completed(…), or hand it tasks instead of coroutines",
            )
        frame = frame.f_back
