"""The template: a fork of the agent from before its first request, of which scripts are forks.

The agent's memory has seen what every command was given: words, environment, input. A script
that were a fork of the agent could read all that in its own memory. So the agent asks this
process for children instead. It is told nothing but when to fork; what a child is to become is
told to the child alone. It is the user's as any command is: whoever kills it gets fresh
interpreters from then on, which are slower and no less right.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict
from errno import EINVAL
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from holdfast.sandbox.inside import frames, zygote

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

_FORKED, _ENDED = b"f", b"e"
_PID, _END = struct.Struct("!i"), struct.Struct("!iiddq")
_LARGEST = 64
_LONGEST_FORK = 5.0
"""Seconds. A template somebody inside has stopped is given up."""
_NONE = -1
NUDGE = 1.0
"""Seconds between attempts to wake it, where commands are the same user and can stop it."""


class Used(NamedTuple):
    """What a process and the children it waited for took, as `resource` names it."""

    ru_utime: float = 0.0
    ru_stime: float = 0.0
    ru_maxrss: int = 0


class Template:
    """The agent's end of it."""

    def __init__(self, agent: Agent, live: Callable[[socket.socket], NoReturn]) -> None:
        self._agent, self._live = agent, live
        self._pid = 0
        self._socket: socket.socket | None = None

    @property
    def due(self) -> bool:
        """Whether it has still to be made."""
        return self._pid == 0

    def make(self) -> None:
        """Fork it. In it, and in its children, this does not return."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.freeze()  # looking for rubbish among what is shared would copy it
        try:
            self._pid = os.fork()
        except OSError:  # no more processes: scripts get fresh interpreters
            self._pid = _NONE
            ours.close()
            theirs.close()
            return
        if self._pid == 0:
            self._serve(theirs)
        theirs.close()
        ours.settimeout(_LONGEST_FORK)
        self._socket = ours
        self._agent.watch(ours.fileno(), read=self._readable)

    def fork(self) -> tuple[int, socket.socket] | None:
        """A child that waits on a socket to be told what to become; None where there is none."""
        if self._socket is None:
            return None
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._socket, [b"."], [theirs.fileno()])
            while (pid := self._hear()) is None:
                pass
        except OSError:  # it takes too long, or has gone
            self._give_up()
            pid = _NONE
        finally:
            theirs.close()
        if pid == _NONE:
            ours.close()
            return None
        return pid, ours

    def nudge(self) -> None:
        """Wake it, should somebody have stopped it: it has ends to tell."""
        if self._socket is not None:
            try:
                os.kill(self._pid, signal.SIGCONT)
            except ProcessLookupError:
                self._give_up()

    def _readable(self, _: int) -> None:
        try:
            self._hear()
        except OSError:
            self._give_up()

    def _hear(self) -> int | None:
        """One message of it: gives the pid of a new child, or passes on how one ended."""
        message = self._socket.recv(_LARGEST) if self._socket is not None else b""
        if message[:1] == _FORKED:
            return int(_PID.unpack(message[1:])[0])
        if message[:1] == _ENDED:
            pid, status, user, system, peak = _END.unpack(message[1:])
            self._agent.ended(pid, status, Used(user, system, peak))
            return None
        self._give_up()
        return _NONE

    def _give_up(self) -> None:
        """Its children become the agent's own; one whose end it kept to itself was killed."""
        if self._socket is None:
            return
        self._agent.forget(self._socket.fileno())
        self._socket.close()
        self._socket = None
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pid in self._agent.running():
            if not os.path.exists(f"/proc/{pid}"):
                self._agent.ended(pid, signal.SIGKILL, Used())

    # ------------------------------------------------------------- in the process itself

    def _serve(self, channel: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        self._agent.close_all_but(channel.fileno())
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        waiting = select.poll()
        for end in (channel, woken):
            waiting.register(end, select.POLLIN)
        while True:
            ready = [fd for fd, _ in waiting.poll()]
            if woken.fileno() in ready:
                woken.recv(4096)
                _reap(channel)
            if channel.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(channel, 1, 1)
                if not data:
                    os._exit(0)  # the agent has gone
                self._fork_one(channel, fds[0])

    def _fork_one(self, channel: socket.socket, fd: int) -> None:
        try:
            pid = os.fork()
        except OSError:
            pid = _NONE
        if pid == 0:
            signal.set_wakeup_fd(-1)
            self._agent.close_all_but(fd)
            os.set_inheritable(fd, False)  # its end is how the agent sees that a program started
            self._live(socket.socket(fileno=fd))
        os.close(fd)
        channel.sendall(_FORKED + _PID.pack(pid))


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        end = _END.pack(pid, status, used.ru_utime, used.ru_stime, used.ru_maxrss)
        channel.sendall(_ENDED + end)


# --- children that become commands: forked by the template, told by the agent what to become ---
# A script's child is forked when it is asked for. Where a fork is slow (gVisor takes some 40 ms to
# fork this interpreter, most of what a short command takes in all) one is made while nobody waits,
# and becomes the next command, script or not.

LULL = 20
"""Milliseconds without a request or a command that are taken for nobody's waiting."""
_STREAMS = 3
_LARGEST_ORDER = 64 * 1024
_REHEARSAL = {"argv": ["/bin/true"], "env": {"PATH": "/bin"}, "cwd": "/"}
_LONGEST_START = 2.0
"""Seconds. Between becoming the user and its program, somebody inside may stop it; then it
counts as started, and the command's own time limit ends it."""


class Ahead:
    """Where commands come from; a child is kept for the next one where that is `wanted`."""

    def __init__(self, agent: Agent, *, wanted: bool) -> None:
        self._agent, self._wanted = agent, wanted
        self._due = wanted
        self._child: tuple[int, socket.socket] | None = None
        self.template = Template(agent, self._wait)

    @property
    def due(self) -> bool:
        """Whether something is to be made, when there is time."""
        return self._due or self.template.due

    def make(self) -> None:
        """Make what is due. In a child this does not return."""
        if self.template.due:
            self.template.make()
        if not self._due:
            return
        self._due = False
        self._child = self.template.fork()
        if self._child is not None:
            self._rehearse(self._child[1])

    def _rehearse(self, channel: socket.socket) -> None:
        """Go through the motions once. What either of us writes to is copied the first time, and
        that is slow too."""
        reading, writing = os.pipe()
        try:
            [(header, _)] = frames.Decoder().feed(frames.encode(_REHEARSAL))
            order = zygote.Order.of(header, self._agent.pythons, self._agent.commands_are)
            _send(channel, order, (reading, writing, writing), rehearsal=True)
            channel.recv(1)
        except OSError:
            pass  # it has ended: the next command finds out
        finally:
            os.close(reading)
            os.close(writing)

    def take(self, order: zygote.Order, streams: zygote.Streams) -> int | None:
        """Have a child become a command; gives its pid, or None where it is to be spawned.

        Raises OSError where the program can't be started.
        """
        self._due = self._wanted
        child, self._child = self._child, None
        if child is None and order.kind is not None:
            child = self.template.fork()
        if child is None:
            return None
        pid, channel = child
        with channel:
            try:
                _send(channel, order, streams)
            except OSError:
                return None  # it was killed before it had its order
            try:
                channel.settimeout(_LONGEST_START)
                failure = channel.recv(_LARGEST_ORDER)
            except OSError:
                return pid  # it has its order: whatever became of it is how the command ended
        if failure:
            number, name = json.loads(failure)
            raise OSError(number, os.strerror(number), name)
        return pid

    def _wait(self, channel: socket.socket) -> NoReturn:
        """The child's life, in which it has nothing open but this: it waits for its order."""
        order, streams = _receive(channel)
        try:
            zygote.become(order, streams)
            if order.kind is None:
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                    signal.signal(number, signal.SIG_DFL)
                self._agent.close_all_but(channel.fileno())
                os.execve(order.program, order.argv, order.env)  # noqa: S606 - not by a shell
        except (OSError, ValueError) as error:  # ValueError: words that no program can be given
            told = [error.errno, error.filename] if isinstance(error, OSError) else [EINVAL, None]
            with contextlib.suppress(OSError):
                channel.sendall(json.dumps(told).encode())
            os._exit(1)
        self._agent.become(order)


def _send(
    channel: socket.socket,
    order: zygote.Order,
    streams: zygote.Streams,
    *,
    rehearsal: bool = False,
) -> None:
    message = frames.encode({"order": asdict(order), "rehearsal": rehearsal})
    sent = socket.send_fds(channel, [message], streams)
    if sent < len(message):  # sending nothing fails once it has become the command and closed this
        channel.sendall(message[sent:])


def _receive(channel: socket.socket) -> tuple[zygote.Order, zygote.Streams]:
    """The order and its streams; a rehearsal is only answered."""
    decoder = frames.Decoder()
    held: list[int] = []
    while True:
        data, fds, _, _ = socket.recv_fds(channel, _LARGEST_ORDER, _STREAMS)
        held += fds
        if not data:
            os._exit(0)  # the agent has gone
        for header, _ in decoder.feed(data):
            order = zygote.Order(**header["order"])
            if not header["rehearsal"]:
                return order, (held[0], held[1], held[2])
            for fd in held:
                os.close(fd)
            held.clear()
            channel.sendall(b".")
