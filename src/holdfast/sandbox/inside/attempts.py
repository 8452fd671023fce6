"""Attempts to leave that nobody in the sandbox meets, passed on to the host by their first packet.

For kernels whose sockets the host can't hold. Nothing is judged here, only sorted out: what the
sandbox says to itself stays inside.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from holdfast.sandbox.namespace import linux

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

WATCHED = "watched"
_AT_ONCE = 32
_KEPT = 600
_TCP, _UDP = 6, 17


def open_sockets() -> list[socket.socket]:
    """Raw sockets that see every packet of this network; none where the kernel has no such.

    Its filters may be accepted and ignored, so each packet is looked at here.
    """
    try:
        linux.own_every_address()
        return [
            socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) for protocol in (_TCP, _UDP)
        ]
    except OSError:
        return []  # an older kernel: what it refuses is not seen


def watch(agent: Agent, sockets: list[socket.socket]) -> None:
    """Pass on what leaves, from now on."""
    for sock in sockets:
        sock.setblocking(False)
        agent.watch(sock.fileno(), read=lambda _, sock=sock: _read(agent, sock))


def _read(agent: Agent, sock: socket.socket) -> None:
    for _ in range(_AT_ONCE):
        try:
            packet = sock.recv(_KEPT)
        except OSError:
            return  # nothing more, for now
        if leaves(packet):
            agent.send({"id": 0, "ev": "packet"}, packet)


def leaves(packet: bytes) -> bool:
    """Whether a packet begins an attempt to leave, or asks for a name."""
    header = (packet[0] & 15) * 4 if packet else 0
    if len(packet) < header + 8 or header < 20:
        return False
    inward = packet[16] == 127 and packet[17] & 0xC0 != 0x40  # but for what stands for names
    if packet[9] == _UDP:
        return not inward or packet[header + 2 : header + 4] == b"\x00\x35"
    syn = len(packet) >= header + 14 and packet[header + 13] & 0x12 == 0x02
    return packet[9] == _TCP and syn and not inward
