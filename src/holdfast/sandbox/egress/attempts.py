"""Attempts that no listener meets: connections to ports no rule mentions, and datagrams.

The sandbox's kernel refuses them by itself. Raw sockets in the sandbox's network let us see the
first packet of each, and nothing else: held by the host, or by the agent where the host can't.
Where there is no network at all, the questions for names are seen the same way: nobody answers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from holdfast.sandbox.inside import packets

_SAME_ATTEMPT = 1.0
_MOST_KNOWN = 4096
_AT_ONCE = 64
_NAME_SERVER, _UDP_HEADER = "127.0.0.1", 8

Seen = Callable[[str, int, str], None]
"""Told an address, a port, and what became of the attempt."""
Asked = Callable[[bytes], None]
"""Told a question for a name, as it was sent."""


class Attempts:
    """Tells attempts by their first packets, each once."""

    def __init__(self, ports: frozenset[int], seen: Seen, asked: Asked | None) -> None:
        self._ports, self._seen, self._asked = ports, seen, asked
        self._known: dict[tuple[int, str, int], float] = {}
        self._loop = asyncio.get_running_loop()

    def packet(self, data: bytes) -> None:
        """Take a packet, which may be anything."""
        packet = packets.parse(data)
        if packet is None:
            return
        if packet.family == socket.AF_INET6:
            self._attempt(packet, "IPv6 is not let out")
        elif packet.protocol == packets.UDP:
            if (packet.port, packet.address) == (packets.NAMES, _NAME_SERVER):
                if self._asked is not None:
                    self._asked(packet.segment[_UDP_HEADER:])
            else:
                self._attempt(packet, "UDP is not let out")
        elif packet.port not in self._ports:  # others a listener has met, and tells what became
            self._attempt(packet, "no rule has this port")

    def _attempt(self, packet: packets.Packet, reason: str) -> None:
        attempt = (packet.protocol, packet.address, packet.port)
        now = self._loop.time()
        before = self._known.get(attempt)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[attempt] = now
        if before is None or now - before > _SAME_ATTEMPT:
            self._seen(packet.address, packet.port, reason)


class PacketReader:
    """Reads one sandbox's raw sockets as long as they are open."""

    def __init__(self, sockets: tuple[socket.socket, ...], take: Callable[[bytes], None]) -> None:
        self._sockets, self._take = sockets, take
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            sock.setblocking(False)
            self._loop.add_reader(sock.fileno(), self._readable, sock)

    def _readable(self, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):  # others want their turn too
            try:
                packet = packets.read(sock)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._loop.remove_reader(sock.fileno())
                return
            self._take(packet)

    def close(self) -> None:
        """See no more; what has come is told first."""
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._readable(sock)
                self._loop.remove_reader(sock.fileno())
                sock.close()
