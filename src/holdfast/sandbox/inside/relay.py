"""Names and connections carried over the channel, where the host can't hold the sockets itself.

Every datagram to the name server and every accepted connection becomes frames; what the host
answers is written back. Nothing is judged here.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

_MOST = 128
CHUNK = 64 * 1024


class Relay:
    """The inside end of a sandbox's network."""

    def __init__(self, agent: Agent, names: int, listeners: dict[int, int]) -> None:
        self._agent = agent
        self._names = socket.socket(fileno=names)
        self._names.setblocking(False)
        self._listeners = {fd: socket.socket(fileno=fd) for fd in listeners}
        self._ports = listeners
        self._connections: dict[int, socket.socket] = {}
        self._waiting: dict[int, bytearray] = {}
        self._next = 0
        agent.watch(names, read=self._question)
        for fd, listener in self._listeners.items():
            listener.setblocking(False)
            agent.watch(fd, read=self._accept)

    def _question(self, _: int) -> None:
        try:
            data, sender = self._names.recvfrom(4096)
        except BlockingIOError:
            return
        self._agent.send({"id": 0, "ev": "question", "port": sender[1]}, data)

    def answer(self, port: int, data: bytes) -> None:
        """Send the host's answer to whoever asked."""
        self._names.sendto(data, ("127.0.0.1", port))

    def _accept(self, fd: int) -> None:
        try:
            connection, _ = self._listeners[fd].accept()
        except BlockingIOError:
            return
        if len(self._connections) >= _MOST:
            connection.close()
            return
        connection.setblocking(False)
        self._next += 1
        key = self._next
        self._connections[key], self._waiting[key] = connection, bytearray()
        address = connection.getsockname()[0]
        event = {"id": 0, "ev": "connected", "connection": key, "address": address}
        self._agent.send({**event, "port": self._ports[fd]})
        self._agent.watch(connection.fileno(), read=lambda _: self._arrived(key))

    def _arrived(self, key: int) -> None:
        connection = self._connections[key]
        try:
            data = connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._agent.send({"id": 0, "ev": "sent", "connection": key}, data)
        if not data:
            self._agent.forget(connection.fileno())
            if self._waiting[key]:
                self._agent.watch(connection.fileno(), write=lambda _: self._flush(key))

    def deliver(self, key: int, data: bytes) -> None:
        """Write what came from outside; nothing means its end."""
        connection = self._connections.get(key)
        if connection is None:
            return
        if not data:
            self.drop(key)
            return
        self._waiting[key] += data
        self._flush(key)

    def _flush(self, key: int) -> None:
        connection, waiting = self._connections[key], self._waiting[key]
        try:
            while waiting:
                del waiting[: connection.send(waiting)]
        except BlockingIOError:
            self._agent.watch(connection.fileno(), write=lambda _: self._flush(key))
            return
        except OSError:
            self.drop(key)
            return
        self._agent.unwatch_writing(connection.fileno())

    def drop(self, key: int) -> None:
        """Close a connection."""
        connection = self._connections.pop(key, None)
        if connection is None:
            return
        waiting = self._waiting.pop(key)
        self._agent.forget(connection.fileno())
        if waiting:
            connection.setblocking(True)
            connection.settimeout(1.0)
            try:
                connection.sendall(waiting)
            except OSError:
                pass  # whoever asked has gone
        connection.close()
