"""Names and connections carried over the channel, where the host can't hold the sockets itself.

Every datagram to the name server and every accepted connection becomes frames; what the host
answers is written back. Nothing is judged here.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from holdfast.sandbox.inside import packets
from holdfast.sandbox.namespace import linux

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


# --- attempts to leave that no listener meets: the host is told of their first packet ---
# Nothing is judged here, only sorted out: what the sandbox says to itself stays inside.

WATCHED = "watched"
_AT_ONCE = 32


class AttemptSender:
    """Raw sockets that see every packet of this network; none where the kernel has no such.

    Its filters may be accepted and ignored, so each packet is looked at here. gVisor answers a
    connection to any IPv4 address by itself, once all are its own, but not one to an IPv6
    address: that would wait for minutes, so it is told here that no route leads there.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._refusals: socket.socket | None = None
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                self._open(family)
            except OSError:
                pass  # an older kernel: what it refuses is not seen

    def _open(self, family: socket.AddressFamily) -> None:
        refusals = None
        if family == socket.AF_INET6:
            refusals = socket.socket(family, socket.SOCK_RAW, packets.ICMPV6)
        opened = [socket.socket(family, socket.SOCK_RAW, p) for p in (packets.TCP, packets.UDP)]
        for sock in opened if refusals else ():
            packets.tell_targets(sock)
        linux.own_every_address(family)
        self._sockets += opened
        self._refusals = refusals or self._refusals

    def begin(self, agent: Agent) -> None:
        """Pass on what leaves, from now on."""
        for sock in self._sockets:
            sock.setblocking(False)
            agent.watch(sock.fileno(), read=lambda _, sock=sock: self._read(agent, sock))

    def _read(self, agent: Agent, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                data = packets.read(sock)
            except OSError:
                return  # nothing more, for now
            packet = packets.parse(data)
            if packet is None or not leaves(packet):
                continue
            agent.send({"id": 0, "ev": "packet"}, data)
            if packet.family == socket.AF_INET6:
                self._refuse(packet)

    def _refuse(self, packet: packets.Packet) -> None:
        if self._refusals is None:
            return
        to = socket.inet_ntop(packet.family, packet.sender)
        try:
            self._refusals.sendto(packets.no_route(packet), (to, 0))
        except OSError:
            pass  # whoever tried waits for its own time limit


def leaves(packet: packets.Packet) -> bool:
    """Whether a packet begins an attempt to leave, or asks for a name."""
    if packet.inward:
        return packet.protocol == packets.UDP and packet.port == packets.NAMES
    return packet.begins
