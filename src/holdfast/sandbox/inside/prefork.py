"""A child forked before there is a command for it, for kernels on which a fork is slow.

gVisor takes some 40 ms to fork this interpreter, most of what a short command takes in all. So
one child is made while nobody waits, and becomes the next command. Until it is told which, it is
what the agent is: nobody inside can signal it or look into it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
from dataclasses import asdict
from errno import EINVAL
from typing import TYPE_CHECKING, NoReturn

from holdfast.sandbox.inside import frames, spawn

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

LULL = 20
"""Milliseconds without a request or a command that are taken for nobody's waiting."""
_STREAMS = 3
_LARGEST = 64 * 1024
_REHEARSAL = {"argv": ["/bin/true"], "env": {"PATH": "/bin"}, "cwd": "/"}
_LONGEST_START = 2.0
"""Seconds. Between becoming the user and its program, somebody inside may stop it; then it
counts as started, and the command's own time limit ends it."""


class Ahead:
    """The child kept for the next command; none at all unless `wanted`."""

    def __init__(self, agent: Agent, *, wanted: bool) -> None:
        self._agent, self._wanted = agent, wanted
        self._due = wanted
        self._child: tuple[int, socket.socket] | None = None

    @property
    def due(self) -> bool:
        """Whether one is to be made, when there is time."""
        return self._due

    def make(self) -> None:
        """Fork it. In the child this does not return."""
        self._due = False
        ours, theirs = socket.socketpair()
        gc.freeze()  # looking for rubbish among what is shared would copy it
        try:
            pid = os.fork()
        except OSError:  # no more processes: the next command finds out whether that is still so
            ours.close()
            theirs.close()
            return
        if pid == 0:
            self._wait(theirs)
        theirs.close()
        self._child = (pid, ours)
        self._rehearse(ours)

    def _rehearse(self, channel: socket.socket) -> None:
        """Go through the motions once. What either of us writes to is copied the first time, and
        that is slow too."""
        reading, writing = os.pipe()
        try:
            [(header, _)] = frames.Decoder().feed(frames.encode(_REHEARSAL))
            order = spawn.Order.of(header, self._agent.pythons, self._agent.commands_are)
            _send(channel, order, (reading, writing, writing), rehearsal=True)
            channel.recv(1)
        except OSError:
            pass  # it has ended: the next command finds out
        finally:
            os.close(reading)
            os.close(writing)

    def take(self, order: spawn.Order, streams: spawn.Streams) -> int | None:
        """Have the child become a command; gives its pid, or None where there is no child.

        Raises OSError where the program can't be started.
        """
        self._due = self._wanted
        if self._child is None:
            return None
        (pid, channel), self._child = self._child, None
        with channel:
            try:
                _send(channel, order, streams)
                channel.settimeout(_LONGEST_START)
                failure = channel.recv(_LARGEST)
            except TimeoutError:
                return pid
            except OSError:
                return None  # it was killed, by a kernel short of memory
        if failure:
            number, name = json.loads(failure)
            raise OSError(number, os.strerror(number), name)
        return pid

    def _wait(self, channel: socket.socket) -> NoReturn:
        """The child's life: all the agent has open is closed, then it waits for its order."""
        signal.set_wakeup_fd(-1)
        self._close_all_but(channel.fileno())
        order, streams = _receive(channel)
        try:
            spawn.become(order, streams)
            if order.kind is None:
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                    signal.signal(number, signal.SIG_DFL)
                self._close_all_but(channel.fileno())
                os.execve(order.program, order.argv, order.env)  # noqa: S606 - not by a shell
        except (OSError, ValueError) as error:  # ValueError: words that no program can be given
            told = [error.errno, error.filename] if isinstance(error, OSError) else [EINVAL, None]
            with contextlib.suppress(OSError):
                channel.sendall(json.dumps(told).encode())
            os._exit(1)
        self._agent.become(order)

    def _close_all_but(self, fd: int) -> None:
        os.closerange(3, fd)
        os.closerange(fd + 1, self._agent.highest_fd)


def _send(
    channel: socket.socket,
    order: spawn.Order,
    streams: spawn.Streams,
    *,
    rehearsal: bool = False,
) -> None:
    message = frames.encode({"order": asdict(order), "rehearsal": rehearsal})
    sent = socket.send_fds(channel, [message], streams)
    channel.sendall(message[sent:])


def _receive(channel: socket.socket) -> tuple[spawn.Order, spawn.Streams]:
    """The order and its streams; a rehearsal is only answered."""
    decoder = frames.Decoder()
    held: list[int] = []
    while True:
        data, fds, _, _ = socket.recv_fds(channel, _LARGEST, _STREAMS)
        held += fds
        if not data:
            os._exit(0)  # the agent has gone
        for header, _ in decoder.feed(data):
            order = spawn.Order(**header["order"])
            if not header["rehearsal"]:
                return order, (held[0], held[1], held[2])
            for fd in held:
                os.close(fd)
            held.clear()
            channel.sendall(b".")
