"""This terminal as that of a program in a sandbox, for `holdfast sandbox shell`.

Keys go to the program as they are pressed, Ctrl-C included; what it shows is shown. The terminal's
own settings are put back at the end, whatever happened. What the program shows may do to a terminal
whatever any program may: it is a way in for people, not a log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import SandboxGone, UsageError
from holdfast.sandbox import CommandResult, Sandbox, Terminal

_CHUNK = 4096


async def attend(sandbox: Sandbox, words: list[str]) -> CommandResult:
    """Run a program in a terminal, ours, to its end."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "a terminal is needed on both sides",
            hint="without one: `holdfast sandbox exec ID COMMAND …`",
        )
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    term = os.environ.get("TERM", "xterm-256color")
    terminal = await sandbox.terminal(*words, columns=columns, rows=rows, env={"TERM": term})
    with _raw(), _following_size(terminal):
        typing = asyncio.create_task(_type(terminal))
        try:
            while shown := await terminal.read():
                await asyncio.to_thread(_show, shown)
        finally:
            typing.cancel()
            await asyncio.wait([typing])
    terminal.close()
    return await terminal.wait()


async def _type(terminal: Terminal) -> None:
    """Send what is typed, as fast as it is taken."""
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    fd = sys.stdin.fileno()
    loop.add_reader(fd, lambda: keys.put_nowait(os.read(fd, _CHUNK)))
    try:
        while pressed := await keys.get():
            await terminal.write(pressed)
    except SandboxGone:
        pass  # the program has ended, which is told where its output is read
    finally:
        loop.remove_reader(fd)


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def _raw() -> Generator[None]:
    """Every key as it is pressed, none of them ours."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def _following_size(terminal: Terminal) -> Generator[None]:
    """Have the program's terminal be as large as ours."""
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    def changed() -> None:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        task = loop.create_task(terminal.resize(columns, rows))
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
