"""Attempts to leave that nobody in the sandbox meets, passed on to the host by their first packet.

For kernels whose sockets the host can't hold. Nothing is judged here, only sorted out: what the
sandbox says to itself stays inside.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from holdfast.sandbox.inside import packets
from holdfast.sandbox.namespace import linux

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

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
