"""A terminal in a sandbox: a program that is talked to as a person would.

    async with await sandbox.terminal("bash") as terminal:
        await terminal.write(b"ls -l\\n")
        shown = await terminal.read()

What is typed is written, what is shown is read, colours and all; it has a size that can change.
Its program is a command like any other, with an id, a record and a result. Closing the terminal
hangs up, which ends a shell; so does the end of whoever opened it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from holdfast.errors import UsageError
from holdfast.sandbox.channel import Channel, Listener
from holdfast.sandbox.command import Command, CommandResult
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.streams import Stream

_LARGEST = 1000


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """In characters."""

    columns: int = 80
    rows: int = 24

    def __post_init__(self) -> None:
        if not (0 < self.columns <= _LARGEST and 0 < self.rows <= _LARGEST):
            raise UsageError(f"a terminal of {self.columns} × {self.rows}", hint="at most 1000")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Terminal(Stream):
    """A running program and its terminal: `read`, `write`, `resize`, `wait`, `close`."""

    command: Command

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)

    def attach(self, command: Command) -> Listener:
        """Be this command's terminal; gives who is to hear of it."""
        self.command = command
        return self._hear

    def _hear(self, header: Header, payload: bytes) -> None:
        event = header["ev"]
        if event in ("data", "taken", "eof"):
            self.receive(header, payload)
            if event == "data":
                self.command.receive({"ev": "out", "fd": 1}, payload)
            return
        if event == "started":
            self.take_number(self.command.key)
        self.command.receive(header, payload)
        if event in ("ended", "gone"):
            self.receive({"ev": "closed"}, b"")

    @property
    def id(self) -> str:
        """Its command's."""
        return self.command.id

    async def resize(self, columns: int, rows: int) -> None:
        """Tell the program that its terminal has this size now."""
        size = TerminalSize(columns, rows)
        if self.command.running:
            key = self.command.key
            await self._channel.request("resize", command=key, **size.as_json())

    async def wait(self) -> CommandResult:
        """How the program ended; what it showed is its standard output."""
        return await self.command.wait()

    def close(self) -> None:
        """Hang up."""
        if not self._closed:
            self._end()
            self._channel.tell("hang_up", flow=self._key)  # its end is still heard
