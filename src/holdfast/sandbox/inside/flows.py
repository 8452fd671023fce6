"""Flows: streams of bytes between the host and something inside, such as a port or a terminal.

Both directions have a window: neither side sends more than the other has said it will take, so a
slow reader holds up its own flow and nothing else, and neither side buffers without end. `data`
and `taken` (so many bytes were passed on, send more) go both ways; `eof` says that no more comes.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

WINDOW = 256 * 1024
CHUNK = 64 * 1024
_MOST = 256
_AT_THE_END = 256 * 1024
"""Bytes of a terminal whose program has ended that are still passed on, room or not."""


class Flow:
    """One descriptor inside, read and written as the host has room and data."""

    def __init__(self, agent: Agent, key: int, fd: int, closed: Callable[[], None]) -> None:
        self._agent, self.key, self.fd = agent, key, fd
        self._closed = closed
        self._room = WINDOW
        self._waiting = bytearray()
        self._ends = False
        self._over = False
        os.set_blocking(fd, False)
        agent.watch(fd, read=self._readable)

    def _readable(self, _: int) -> None:
        try:
            data = os.read(self.fd, min(CHUNK, self._room))
        except BlockingIOError:
            return
        except OSError:  # reset; or a terminal that nobody has open any more
            data = b""
        if not data:
            self._agent.unwatch_reading(self.fd)
            self._over = True
            self._agent.send({"id": self.key, "ev": "eof"})
            self._close_if_done()
            return
        self._room -= len(data)
        self._agent.send({"id": self.key, "ev": "data"}, data)
        if self._room <= 0:
            self._agent.unwatch_reading(self.fd)

    def taken(self, size: int) -> None:
        """The host has passed on so much: it has room for as much more."""
        if self.fd < 0:
            return
        stopped = self._room <= 0
        self._room = min(self._room + size, WINDOW)
        if stopped and self._room > 0 and not self._over:
            self._agent.watch(self.fd, read=self._readable)

    def feed(self, data: bytes) -> None:
        """What the host sent."""
        if len(self._waiting) + len(data) > 2 * WINDOW:
            self.close()  # it does not keep to what we said we would take
            return
        self._waiting += data
        self._write(self.fd)

    def finish(self) -> None:
        """The host will send no more."""
        self._ends = True
        if not self._waiting and self.fd >= 0:
            self._shut_down()

    def _write(self, fd: int) -> None:
        done = 0
        try:
            while self._waiting:
                written = os.write(fd, self._waiting[:CHUNK])
                del self._waiting[:written]
                done += written
        except BlockingIOError:
            self._agent.watch(fd, write=self._write)
        except OSError:  # nobody reads it any more; what comes from it may still be of use
            done += len(self._waiting)
            self._waiting.clear()
        if done:
            self._agent.send({"id": self.key, "ev": "taken", "bytes": done})
        if not self._waiting:
            self._agent.unwatch_writing(fd)
            if self._ends:
                self._shut_down()

    def _shut_down(self) -> None:
        try:
            with socket.socket(fileno=os.dup(self.fd)) as ours:
                ours.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # a terminal, which has no such end; or it is closed already
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._over and self._ends:
            self.close()

    def drain(self) -> None:
        """Pass on what is there at the end, in place of waiting for room."""
        left = _AT_THE_END
        while left > 0 and not self._over:
            try:
                data = os.read(self.fd, min(CHUNK, left))
            except OSError:
                return
            if not data:
                return
            left -= len(data)
            self._agent.send({"id": self.key, "ev": "data"}, data)

    def close(self) -> None:
        """Let go of it."""
        if self.fd >= 0:
            self._agent.forget(self.fd)
            os.close(self.fd)
            self.fd = -1
            self._closed()


class Flows:
    """The flows of one sandbox."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._open: dict[int, Flow] = {}
        self._dialling: dict[int, socket.socket] = {}

    def begin(self, key: int, fd: int, closed: Callable[[], None] | None = None) -> Flow:
        """A flow of this descriptor, which is ours from now on."""

        def gone() -> None:
            self._open.pop(key, None)
            if closed is not None:
                closed()
            else:
                self._agent.send({"id": key, "ev": "closed"})

        self._open[key] = flow = Flow(self._agent, key, fd, gone)
        return flow

    def dial(self, key: int, port: int) -> None:
        """Connect to a port inside; `connected` or an error answers, then it is a flow."""
        if not 0 < port < 65536:
            raise OSError(errno.EINVAL, f"{port} is no port")
        if len(self._open) + len(self._dialling) >= _MOST:
            raise OSError(errno.EMFILE, f"more than {_MOST} connections at once")
        self._try(key, port, [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])

    def _try(self, key: int, port: int, places: list[tuple[Any, str]]) -> None:
        (family, address), rest = places[0], places[1:]
        trial = socket.socket(family, socket.SOCK_STREAM)
        trial.setblocking(False)
        failure = trial.connect_ex((address, port))
        if failure == errno.EINPROGRESS:
            self._dialling[key] = trial
            place = (address, port)
            self._agent.watch(trial.fileno(), write=lambda _: self._dialled(key, place, rest))
            return
        self._settle(key, port, trial, failure, rest)

    def _dialled(self, key: int, place: tuple[str, int], rest: list[tuple[Any, str]]) -> None:
        trial = self._dialling[key]
        failure = trial.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # gVisor may say that it can be written before it is connected, or refused: ask it.
        failure = failure or trial.connect_ex(place)
        if failure in (errno.EALREADY, errno.EINPROGRESS):
            return
        del self._dialling[key]
        self._agent.forget(trial.fileno())
        try:
            connected = failure in (0, errno.EISCONN)
            self._settle(key, place[1], trial, 0 if connected else failure, rest)
        except OSError as error:
            self._agent.fail(key, error)

    def _settle(
        self,
        key: int,
        port: int,
        trial: socket.socket,
        failure: int,
        rest: list[tuple[Any, str]],
    ) -> None:
        if failure == 0:
            trial.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._agent.send({"id": key, "ev": "connected"})
            self.begin(key, trial.detach())
            return
        trial.close()
        if not rest:
            raise OSError(failure, f"port {port}: {os.strerror(failure)}")
        try:
            self._try(key, port, rest)
        except OSError:
            raise OSError(failure, f"port {port}: {os.strerror(failure)}") from None

    def get(self, key: int) -> Flow | None:
        """The flow of this number, if it is still open."""
        return self._open.get(key)

    def hang_up(self, key: int) -> None:
        """The host wants no more of it."""
        trial = self._dialling.pop(key, None)
        if trial is not None:
            self._agent.forget(trial.fileno())
            trial.close()
        flow = self._open.get(key)
        if flow is not None:
            flow.close()
