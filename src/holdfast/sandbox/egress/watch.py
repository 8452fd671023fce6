"""Attempts that no listener meets: connections to ports no rule mentions, and datagrams.

The sandbox's kernel refuses them by itself. A packet socket in the sandbox's network, which only
the host has, lets us see the first packet of each, and nothing else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable

_TCP = 6
_SAME_ATTEMPT = 1.0
_MOST_KNOWN = 4096
_AT_ONCE = 64

Seen = Callable[[str, int, str], None]
"""Told an address, a port, and what became of the attempt."""


def parse(packet: bytes) -> tuple[int, str, int] | None:
    """Protocol, address and port that an IPv4 packet is for."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    header = (packet[0] & 15) * 4
    if len(packet) < header + 4:
        return None
    port = struct.unpack_from("!H", packet, header + 2)[0]
    return packet[9], str(ipaddress.IPv4Address(packet[16:20])), port


class Watch:
    """Reads one sandbox's packet socket as long as it is open."""

    def __init__(self, sock: socket.socket, ports: frozenset[int], seen: Seen) -> None:
        self._socket, self._ports, self._seen = sock, ports, seen
        self._known: dict[tuple[int, str, int], float] = {}
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):  # others want their turn too
            try:
                packet = self._socket.recv(128)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._loop.remove_reader(self._socket.fileno())
                return
            found = parse(packet)
            if found is not None:
                self._attempt(found)

    def _attempt(self, found: tuple[int, str, int]) -> None:
        protocol, address, port = found
        if protocol == _TCP and port in self._ports:
            return  # a listener has met it, and tells what became of it
        now = self._loop.time()
        before = self._known.get(found)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[found] = now
        if before is None or now - before > _SAME_ATTEMPT:
            kind = "no rule has this port" if protocol == _TCP else "UDP is not let out"
            self._seen(address, port, kind)

    async def close(self) -> None:
        """See no more; what has come is told first. Closing waits for the kernel: in a thread."""
        if self._socket.fileno() >= 0:
            self._readable()
            self._loop.remove_reader(self._socket.fileno())
            await asyncio.to_thread(self._socket.close)
