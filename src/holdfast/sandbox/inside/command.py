"""Commands in a sandbox: start a process, carry its output, end it and all it started.

Each command leads a session of its own. How one ended is told exactly once, after what it
wrote before its end. Processes a command leaves behind live on until the sandbox stops.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.inside import zygote
from holdfast.sandbox.inside.flows import Flow
from holdfast.sandbox.inside.template import Used

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

CHUNK = 64 * 1024
EXPENDABLE = 500  # of 1000: where memory runs out, commands die before the agent
_MOST_IN_A_PIPE = 1024 * 1024


class Command:
    """One started process and its pipes, as the agent sees them."""

    def __init__(self, agent: Agent, key: int, header: dict[str, Any]) -> None:
        self.agent, self.key = agent, key
        self.pid = 0
        self.how: str | None = None
        self.left = int(header.get("max_output") or 0) or None
        self.started = time.monotonic()
        limit = header.get("timeout")
        self.deadline = self.started + float(limit) if limit is not None else None
        self.stdin: int | None = None
        self._stdin_waiting: list[tuple[int, bytes]] = []
        self._stdin_ends = False
        self.outputs: dict[int, int] = {}
        self.terminal: Flow | None = None
        self.over = False

    def start(self, header: dict[str, Any]) -> None:
        """Fork; in the child, become the program. Raises OSError where it can't be started."""
        order = zygote.Order.of(header, self.agent.pythons, self.agent.commands_are)
        if header.get("terminal"):
            self._start_in_terminal(order, header["terminal"])
            return
        out, err = os.pipe(), os.pipe()
        stdin = os.pipe() if header.get("stdin") else (os.open(os.devnull, os.O_RDONLY), None)
        ours = [fd for fd in (out[0], err[0], stdin[1]) if fd is not None]
        self._launch(order, (stdin[0], out[1], err[1]), ours)
        self.outputs = {out[0]: 1, err[0]: 2}
        for fd in self.outputs:
            os.set_blocking(fd, False)
            self.agent.watch(fd, read=self._readable)
        if stdin[1] is not None:
            self.stdin = stdin[1]
            os.set_blocking(self.stdin, False)

    def _launch(self, order: zygote.Order, theirs: zygote.Streams, ours: list[int]) -> None:
        """Start it with `theirs` as its streams, which are closed here; `ours` if that fails."""
        self.agent.set_oom_score(EXPENDABLE)
        try:
            self.pid = self.agent.ahead.take(order, theirs) or zygote.start(order, theirs)
        except OSError:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            self.agent.set_oom_score(0)
            for fd in set(theirs):
                os.close(fd)

    def _start_in_terminal(self, order: zygote.Order, size: dict[str, Any]) -> None:
        """Start it with a terminal of its own, whose other end is a flow to the host."""
        ours, theirs = os.openpty()
        _set_size(ours, int(size["columns"]), int(size["rows"]))
        self._launch(order, (theirs, theirs, theirs), [ours])
        self.terminal = self.agent.flows.begin(self.key, ours, self._hung_up)

    def _hung_up(self) -> None:
        """Nobody looks at the terminal any more: its processes are told, as a kernel would
        (gVisor's does not)."""
        if self.terminal is not None:
            self.terminal = None
            self.signal(signal.SIGHUP)

    def resize(self, columns: int, rows: int) -> None:
        """Change what the program is told of its terminal's size."""
        if self.terminal is not None:
            _set_size(self.terminal.fd, columns, rows)

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output(fd)
            return
        if not self.over:
            self._tell(self.outputs[fd], data)

    def _tell(self, stream: int, data: bytes) -> None:
        if self.left is not None:
            if len(data) > self.left:
                data = data[: self.left]
                self.end("output_limit")
            self.left -= len(data)
        if data:
            self.agent.send({"id": self.key, "ev": "out", "fd": stream}, data)

    def _close_output(self, fd: int) -> None:
        self.agent.forget(fd)
        del self.outputs[fd]
        os.close(fd)

    def feed(self, request: int, data: bytes, *, last: bool) -> None:
        """Write to the program's standard input; answers `request` once it is written."""
        if self.stdin is None:
            self.agent.send({"id": request, "ev": "ok", "open": False})
            return
        self._stdin_waiting.append((request, data))
        self._stdin_ends = self._stdin_ends or last
        self._writable(self.stdin)

    def _writable(self, fd: int) -> None:
        try:
            while self._stdin_waiting:
                request, data = self._stdin_waiting[0]
                written = os.write(fd, data) if data else 0
                if written < len(data):
                    self._stdin_waiting[0] = (request, data[written:])
                    continue
                self._stdin_waiting.pop(0)
                self.agent.send({"id": request, "ev": "ok", "open": True})
        except BlockingIOError:
            self.agent.watch(fd, write=self._writable)
            return
        except BrokenPipeError:
            self._close_stdin()
            return
        if self._stdin_ends:
            self._close_stdin()
        else:
            self.agent.forget(fd)

    def _close_stdin(self) -> None:
        if self.stdin is None:
            return
        self.agent.forget(self.stdin)
        os.close(self.stdin)
        self.stdin = None
        for request, _ in self._stdin_waiting:
            self.agent.send({"id": request, "ev": "ok", "open": False})
        self._stdin_waiting.clear()

    def end(self, how: str) -> None:
        """Kill the command and everything below it, noting why."""
        if self.how is None and not self.over:
            self.how = how
        self.signal(signal.SIGKILL)

    def family(self) -> set[int]:
        """The command's process and everything below it."""
        return _family(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the command and everything below it, once each."""
        reached = set[int]()
        for _ in range(20):
            # A family that forks meanwhile is caught in the next round. A shell that is signalled
            # as it starts a program waits for that program: missing it would be losing the signal.
            targets = _family(self.pid) - reached
            if not targets:
                return
            for pid in targets:
                _send(pid, number)
            reached |= targets

    def exited(self, status: int, used: Used) -> None:
        """The process has ended: carry what it still had written, then tell how it ended.

        `used` is what it and the children it waited for took; of the memory, the largest of them.
        """
        self.over = False
        for fd in list(self.outputs):
            self._drain(fd)
        terminal, self.terminal = self.terminal, None
        if terminal is not None:
            terminal.drain()
            terminal.close()
        self.over = True
        self._close_stdin()
        code, killer = os.waitstatus_to_exitcode(status), None
        if code < 0:
            code, killer = None, -code
        how = self.how or ("signalled" if killer else "exited")
        space = os.statvfs("/")
        self.agent.send(
            {
                "id": self.key,
                "ev": "ended",
                "how": how,
                "code": code,
                "signal": killer,
                "seconds": time.monotonic() - self.started,
                "cpu": used.ru_utime + used.ru_stime,
                "peak": used.ru_maxrss * 1024,
                "disk_full": space.f_bavail == 0 or space.f_bavail * space.f_frsize < CHUNK,
                "inodes_full": space.f_files > 0 and space.f_ffree < 2,
            }
        )

    def _drain(self, fd: int) -> None:
        taken = 0
        while taken < _MOST_IN_A_PIPE:
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._close_output(fd)
                return
            taken += len(data)
            self._tell(self.outputs[fd], data)

    def close(self) -> None:
        """Let go of the pipes."""
        for fd in list(self.outputs):
            self._close_output(fd)
        self._close_stdin()


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _family(pid: int) -> set[int]:
    """The process, its descendants, and whoever is in its session."""
    children: dict[int, list[int]] = {}
    found = {pid}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        if fields[0] in (b"Z", b"X"):
            continue
        children.setdefault(int(fields[1]), []).append(int(entry))
        if int(fields[3]) == pid:
            found.add(int(entry))
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found - {1}
