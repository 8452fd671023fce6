"""The agent's loop: requests in, events out, on one channel; its end is the sandbox's end.

First process of its pid namespace, so everything in the sandbox dies with it, and every orphan
is its child to reap. It ends when the channel does: no host process, no sandbox.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.sandbox.inside import archive, files, flows, frames, template, zygote
from holdfast.sandbox.inside.command import EXPENDABLE, Command
from holdfast.sandbox.inside.watches import MOST, Watch

if TYPE_CHECKING:
    from holdfast.sandbox.inside.relay import Relay

_HIGH_WATER = 2 * 1024 * 1024
Watcher = Callable[[int], None]


class Agent:
    """Serves one sandbox. `make_ordinary` is what a forked child calls to stop being agent-like."""

    def __init__(
        self,
        reader: int,
        writer: int,
        *,
        pythons: frozenset[str],
        make_ordinary: Callable[[], None],
        oom_score_fd: int | None = None,
        memory_limit: int | None = None,
        commands_are: int | None = None,
        forks_ahead: bool = False,
    ) -> None:
        self.pythons, self.make_ordinary = pythons, make_ordinary
        self._oom_score_fd, self._memory = oom_score_fd, memory_limit
        self.commands_are = commands_are
        """The user commands become, where that is not who we are already."""
        self.ahead = template.Ahead(self, wanted=forks_ahead)
        self._next_look = self._next_nudge = 0.0
        self.relay: Relay | None = None
        self.flows = flows.Flows(self)
        self._watches: dict[int, Watch] = {}
        self._reader, self._writer = reader, writer
        self._decoder = frames.Decoder()
        self._out = bytearray()
        self._poll = select.poll()
        self._readers: dict[int, Watcher] = {}
        self._writers: dict[int, Watcher] = {}
        self._commands: dict[int, Command] = {}
        self._by_pid: dict[int, Command] = {}
        self.highest_fd = os.sysconf("SC_OPEN_MAX")
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.watch(reader, read=self._requests)
        self._wake_on_child()

    def _wake_on_child(self) -> None:
        # Sockets: a pipe of ours somebody inside might open by /proc, and read what is for us.
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        # The first process of a pid namespace gets no signal it has no handler for.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        self.watch(self._woken.fileno(), read=self._reap)

    def watch(self, fd: int, *, read: Watcher | None = None, write: Watcher | None = None) -> None:
        """Call back when `fd` can be read or written."""
        if read is not None:
            self._readers[fd] = read
        if write is not None:
            self._writers[fd] = write
        self._register(fd)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`."""
        known = fd in self._readers or fd in self._writers
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)
        if known:
            self._poll.unregister(fd)

    def unwatch_writing(self, fd: int) -> None:
        """Watch `fd` for reading only, from now on."""
        if self._writers.pop(fd, None) is not None:
            if fd in self._readers:
                self._register(fd)
            else:
                self._poll.unregister(fd)

    def unwatch_reading(self, fd: int) -> None:
        """Watch `fd` for writing only, from now on."""
        if self._readers.pop(fd, None) is not None:
            if fd in self._writers:
                self._register(fd)
            else:
                self._poll.unregister(fd)

    def _register(self, fd: int) -> None:
        mask = select.POLLIN if fd in self._readers else 0
        self._poll.register(fd, mask | (select.POLLOUT if fd in self._writers else 0))

    def send(self, header: frames.Header, payload: bytes = b"") -> None:
        """Queue a frame for the host."""
        self._out += frames.encode(header, payload)

    def set_oom_score(self, score: int) -> None:
        """What we, and whatever we start now, are worth to a kernel short of memory."""
        if self._oom_score_fd is not None:
            os.write(self._oom_score_fd, str(score).encode())

    def become(self, script: zygote.Program) -> NoReturn:
        """In a forked child: be the agent no more, and the script instead."""
        # All the agent has open is closed before anybody of our uid may look at us.
        os.closerange(3, self.highest_fd)
        self.make_ordinary()
        if self._oom_score_fd is not None:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write(str(EXPENDABLE))
        raise zygote.BecomeScript(script, self)

    def run(self) -> None:
        """Serve until the channel ends."""
        while True:
            self._flush(self._writer)
            spare = self.ahead.due and not self._commands and not self._out
            events = self._poll.poll(template.LULL if spare else self._next_deadline())
            if spare and not events:
                self.ahead.make()
            for fd, event in events:
                if event & select.POLLOUT and fd in self._writers:
                    self._writers[fd](fd)
                if event & ~select.POLLOUT and fd in self._readers:
                    # While the host is slow to take what we have, nothing more is read.
                    if len(self._out) > _HIGH_WATER and fd != self._reader:
                        self._flush(self._writer)
                        if len(self._out) > _HIGH_WATER:
                            self._wait_for_host()
                    self._readers[fd](fd)
                elif event & (select.POLLERR | select.POLLHUP) and fd in self._writers:
                    self._writers[fd](fd)
            self._expire()

    def _wait_for_host(self) -> None:
        select.select([], [self._writer], [], 0.05)
        self._flush(self._writer)

    def _flush(self, fd: int) -> None:
        while self._out:
            try:
                written = os.write(fd, self._out[:262144])
            except BlockingIOError:
                self.watch(fd, write=self._flush)
                return
            except BrokenPipeError:
                self._farewell()
                return
            del self._out[:written]
        self.unwatch_writing(fd)

    def _requests(self, fd: int) -> None:
        if self.ahead.template.due:
            self.ahead.template.make()  # while we know nothing a script should not see
        try:
            data = os.read(fd, 1024 * 1024)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._farewell()
        for header, payload in self._decoder.feed(data):
            self._answer(header, payload)

    @staticmethod
    def _farewell() -> None:
        # The kernel kills whatever else lives in this pid namespace.
        os._exit(0)

    def _answer(self, header: frames.Header, payload: bytes) -> None:
        key = int(header["id"])
        try:
            reply = getattr(self, f"_do_{header['op']}")(key, header, payload)
        except OSError as error:
            self.fail(key, error)
        except (ValueError, KeyError, TypeError) as error:
            self.send({"id": key, "ev": "error", "errno": errno.EINVAL, "message": repr(error)})
        else:
            if reply is not None:
                self.send({"id": key, "ev": "ok", **reply})

    def fail(self, key: int, error: OSError) -> None:
        """Answer a request with why it could not be done."""
        self.send(
            {
                "id": key,
                "ev": "error",
                "errno": error.errno or errno.EIO,
                "message": error.strerror or str(error),
                "path": str(error.filename) if error.filename is not None else None,
            }
        )

    def _do_ping(self, *_: object) -> dict[str, Any]:
        return {}

    def _do_answer(self, _: int, header: frames.Header, payload: bytes) -> None:
        if self.relay is not None:
            self.relay.answer(int(header["port"]), payload)

    def _do_deliver(self, _: int, header: frames.Header, payload: bytes) -> None:
        if self.relay is not None:
            self.relay.deliver(int(header["connection"]), payload)

    def _do_pause(self, *_: object) -> dict[str, Any]:
        return self._signal_all(signal.SIGSTOP)

    def _do_resume(self, *_: object) -> dict[str, Any]:
        return self._signal_all(signal.SIGCONT)

    @staticmethod
    def _signal_all(number: int) -> dict[str, Any]:
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            pass  # there is nobody but us
        return {}

    def _do_run(self, key: int, header: frames.Header, _: bytes) -> None:
        command = Command(self, key, header)
        command.start(header)
        self._commands[key] = self._by_pid[command.pid] = command
        self.send({"id": key, "ev": "started", "pid": command.pid})

    def _do_stdin(self, key: int, header: frames.Header, payload: bytes) -> dict[str, Any] | None:
        command = self._commands.get(int(header["command"]))
        if command is None:
            return {"open": False}
        command.feed(key, payload, last=bool(header.get("last")))
        return None

    def _do_kill(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        command = self._commands.get(int(header["command"]))
        if command is not None:
            if header.get("how"):
                command.end(str(header["how"]))
            else:
                command.signal(int(header["signal"]))
        return {"found": command is not None}

    def _do_dial(self, key: int, header: frames.Header, _: bytes) -> None:
        self.flows.dial(key, int(header["port"]))

    def _do_flow(self, _: int, header: frames.Header, payload: bytes) -> None:
        flow = self.flows.get(int(header["flow"]))
        if flow is None:
            return
        if payload:
            flow.feed(payload)
        flow.taken(int(header.get("taken", 0)))
        if header.get("last"):
            flow.finish()

    def _do_hang_up(self, _: int, header: frames.Header, __: bytes) -> None:
        key = int(header["flow"])
        if key in self._watches:
            self._watches[key].close()
        else:
            self.flows.hang_up(key)

    def _do_watch(self, key: int, header: frames.Header, _: bytes) -> None:
        if len(self._watches) >= MOST:
            raise OSError(errno.EMFILE, f"more than {MOST} watches at once")
        self._watches[key] = Watch(
            self,
            key,
            header["path"],
            recursive=bool(header.get("recursive")),
            closed=lambda: self._forget_watch(key),
        )
        self.send({"id": key, "ev": "watching"})

    def _forget_watch(self, key: int) -> None:
        self._watches.pop(key, None)

    def _do_watched(self, _: int, header: frames.Header, __: bytes) -> None:
        watch = self._watches.get(int(header["flow"]))
        if watch is not None:
            watch.taken()

    def _do_resize(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        command = self._commands.get(int(header["command"]))
        if command is not None:
            command.resize(int(header["columns"]), int(header["rows"]))
        return {"found": command is not None}

    def _do_write(self, _: int, header: frames.Header, payload: bytes) -> dict[str, Any]:
        files.write(
            header["path"], payload, append=bool(header.get("append")), mode=header.get("mode")
        )
        return {}

    def _do_unpack(self, _: int, header: frames.Header, payload: bytes) -> dict[str, Any]:
        files.unpack(header["path"], header["entries"], payload)
        return {}

    def _do_read(self, key: int, header: frames.Header, _: bytes) -> None:
        self._stream(key, files.read(header["path"], limit=int(header["limit"])))

    def _do_read_at(self, key: int, header: frames.Header, _: bytes) -> dict[str, Any]:
        data, file = files.read_at(header["path"], int(header["offset"]), int(header["limit"]))
        if data:
            self.send({"id": key, "ev": "data"}, data)
        return {"file": file}

    def _do_list(self, key: int, header: frames.Header, _: bytes) -> None:
        pieces = files.listing(
            header["path"], recursive=bool(header.get("recursive")), limit=int(header["limit"])
        )
        self._stream(key, pieces)

    def _do_pack(self, key: int, *_: object) -> None:
        self._stream(key, archive.pack())

    def _stream(self, key: int, pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                self.send({"id": key, "ev": "data"}, piece)
                while len(self._out) > _HIGH_WATER:
                    self._wait_for_host()
        except OSError as error:
            self.fail(key, error)
        else:
            self.send({"id": key, "ev": "ok"})

    def _do_mkdir(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        os.makedirs(header["path"], exist_ok=True)
        return {}

    def _do_stat(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        return {"entry": files.describe(header["path"])}

    def _do_rename(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        files.rename(header["path"], header["to"])
        return {}

    def _do_remove(self, _: int, header: frames.Header, __: bytes) -> dict[str, Any]:
        files.remove(header["path"])
        return {}

    def _reap(self, fd: int) -> None:
        try:
            os.read(fd, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended(pid, status, template.Used(used.ru_utime, used.ru_stime, used.ru_maxrss))

    def ended(self, pid: int, status: int, used: template.Used) -> None:
        """A process has ended, perhaps a command's."""
        command = self._by_pid.pop(pid, None)
        if command is not None:
            del self._commands[command.key]
            command.exited(status, used)

    def running(self) -> list[int]:
        """The processes of the commands that have not ended."""
        return list(self._by_pid)

    def close_all_but(self, fd: int) -> None:
        """In a child: let go of whatever we have open but this and the standard streams."""
        os.closerange(3, fd)
        os.closerange(fd + 1, self.highest_fd)

    def _next_deadline(self) -> float | None:
        deadlines = [c.deadline for c in self._commands.values() if c.deadline is not None]
        if self._memory is not None:
            deadlines.append(self._next_look)
        if self._commands and self.commands_are is None:
            deadlines.append(self._next_nudge)
        return max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1 if deadlines else None

    def _expire(self) -> None:
        now = time.monotonic()
        for command in list(self._commands.values()):
            if command.deadline is not None and command.deadline <= now:
                command.deadline = None
                command.end("timed_out")
        if self._commands and self.commands_are is None and now >= self._next_nudge:
            self.ahead.template.nudge()
            self._next_nudge = now + template.NUDGE
        if self._memory is not None and now >= self._next_look:
            self._watch_memory(self._memory)
            # Looking must stay a small part of what is done, however many processes there are.
            self._next_look = time.monotonic() + max(_MEMORY_PERIOD, 5 * (time.monotonic() - now))

    def _watch_memory(self, limit: int) -> None:
        processes = over_memory(limit)
        if not processes:
            return
        families = {c.key: c.family() for c in self._commands.values()}
        held = {key: sum(processes.get(pid, 0) for pid in f) for key, f in families.items()}
        largest = max(processes, key=lambda pid: processes[pid])
        worst = max(held, key=lambda key: held[key], default=None)
        if worst is not None and held[worst] >= processes[largest]:
            self._commands[worst].end("out_of_memory")
        else:
            os.kill(largest, signal.SIGKILL)


def _do_nothing(*_: object) -> None:
    """A handler that only wakes the loop."""


# --- memory in use, for hosts without a memory cgroup ---
# Adds up what every process and every file holds and names who is to be killed once that passes
# the limit. Coarser than the kernel's own count: it looks every tenth of a second.

_MEMORY_PERIOD = 0.1


def over_memory(limit: int) -> dict[int, int] | None:
    """The memory of each process, if all of it together with the files is over `limit`."""
    space = os.statvfs("/")
    total = (space.f_blocks - space.f_bfree) * space.f_frsize
    processes: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and entry != "1":
            processes[int(entry)] = _held(entry)
    return processes if total + sum(processes.values()) > limit else None


def _held(pid: str) -> int:
    """What a process holds alone, and its share of what it has in common with others."""
    try:
        return _sum(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    except PermissionError:
        # One that forbids others to look is counted with all it shares.
        try:
            return _sum(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))
        except OSError:
            return 0
    except OSError:
        return 0  # it has just ended


def _sum(path: str, fields: tuple[bytes, ...]) -> int:
    kilobytes = 0
    for line in Path(path).read_bytes().splitlines():
        if line.startswith(fields):
            kilobytes += int(line.split()[1])
    return kilobytes * 1024
