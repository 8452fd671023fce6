"""Attempts that no listener meets: connections to ports no rule mentions, and datagrams.

The sandbox's kernel refuses them by itself. Raw sockets in the sandbox's network let us see the
first packet of each, and nothing else: held by the host, or by the agent where the host can't.
Where there is no network at all, the questions for names are seen the same way: nobody answers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable

_TCP, _UDP = 6, 17
_SAME_ATTEMPT = 1.0
_MOST_KNOWN = 4096
_AT_ONCE = 64
_NAMES, _NAME_SERVER, _UDP_HEADER = 53, "127.0.0.1", 8

Seen = Callable[[str, int, str], None]
"""Told an address, a port, and what became of the attempt."""
Asked = Callable[[bytes], None]
"""Told a question for a name, as it was sent."""


def parse(packet: bytes) -> tuple[int, str, int] | None:
    """Protocol, address and port that an IPv4 packet is for."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    header = (packet[0] & 15) * 4
    if len(packet) < header + 4:
        return None
    port = struct.unpack_from("!H", packet, header + 2)[0]
    return packet[9], str(ipaddress.IPv4Address(packet[16:20])), port


class Attempts:
    """Tells attempts by their first packets, each once."""

    def __init__(self, ports: frozenset[int], seen: Seen, asked: Asked | None) -> None:
        self._ports, self._seen, self._asked = ports, seen, asked
        self._known: dict[tuple[int, str, int], float] = {}
        self._loop = asyncio.get_running_loop()

    def packet(self, packet: bytes) -> None:
        """Take a packet, which may be anything."""
        found = parse(packet)
        if found is None:
            return
        protocol, address, port = found
        if protocol == _UDP and port == _NAMES and address == _NAME_SERVER:
            if self._asked is not None:
                self._asked(packet[(packet[0] & 15) * 4 + _UDP_HEADER :])
        elif protocol == _UDP or (protocol == _TCP and port not in self._ports):
            self._attempt(found)  # others a listener has met, and tells what became of them

    def _attempt(self, found: tuple[int, str, int]) -> None:
        protocol, address, port = found
        now = self._loop.time()
        before = self._known.get(found)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[found] = now
        if before is None or now - before > _SAME_ATTEMPT:
            kind = "no rule has this port" if protocol == _TCP else "UDP is not let out"
            self._seen(address, port, kind)


class Watch:
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
                packet = sock.recv(1024)
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
