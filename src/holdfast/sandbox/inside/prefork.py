"""Children that become commands: forked by the template, told by the agent what to become.

A script's child is forked when it is asked for. Where a fork is slow (gVisor takes some 40 ms to
fork this interpreter, most of what a short command takes in all) one is made while nobody waits,
and becomes the next command, script or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from dataclasses import asdict
from errno import EINVAL
from typing import TYPE_CHECKING, NoReturn

from holdfast.sandbox.inside import frames, spawn
from holdfast.sandbox.inside.template import Template

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
            order = spawn.Order.of(header, self._agent.pythons, self._agent.commands_are)
            _send(channel, order, (reading, writing, writing), rehearsal=True)
            channel.recv(1)
        except OSError:
            pass  # it has ended: the next command finds out
        finally:
            os.close(reading)
            os.close(writing)

    def take(self, order: spawn.Order, streams: spawn.Streams) -> int | None:
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
                failure = channel.recv(_LARGEST)
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
            spawn.become(order, streams)
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
    order: spawn.Order,
    streams: spawn.Streams,
    *,
    rehearsal: bool = False,
) -> None:
    message = frames.encode({"order": asdict(order), "rehearsal": rehearsal})
    sent = socket.send_fds(channel, [message], streams)
    if sent < len(message):  # sending nothing fails once it has become the command and closed this
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
