"""First packets of attempts to leave: how raw sockets give them, and what they are for.

For both sides: the host reads them where it holds the sockets, the agent where the host can't.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

TCP, UDP, ICMPV6 = 6, 17, 58
NAMES = 53
_KEPT = 600
_IPV6_HEADER = struct.Struct("!IHBB16s16s")
_HOPS = 64
_PACKET_INFO = 20
_SYN, _SYN_OR_ACK = 0x02, 0x12


@dataclass(frozen=True, slots=True)
class Packet:
    """What an IP packet is for."""

    protocol: int
    family: int
    sender: bytes
    target: bytes
    port: int
    segment: bytes
    """What the protocol's own header begins."""

    @property
    def address(self) -> str:
        return socket.inet_ntop(self.family, self.target)

    @property
    def inward(self) -> bool:
        """Whether it is for the sandbox itself, and not for an address that stands for a name."""
        if self.family == socket.AF_INET6:
            return self.target == _OWN_IPV6
        return self.target[0] == 127 and self.target[1] & 0xC0 != 0x40

    @property
    def begins(self) -> bool:
        """Whether it begins something: all do, but for those inside a TCP connection."""
        return self.protocol != TCP or (
            len(self.segment) > 13 and self.segment[13] & _SYN_OR_ACK == _SYN
        )


_OWN_IPV6 = socket.inet_pton(socket.AF_INET6, "::1")


def tell_targets(sock: socket.socket) -> None:
    """Let an IPv6 socket say where its packets were sent to: their headers it keeps to itself."""
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)


def read(sock: socket.socket) -> bytes:
    """The next packet, with its IP header. Raises BlockingIOError where there is none."""
    if sock.family == socket.AF_INET:
        return sock.recv(_KEPT)
    data, extras, _, sender = sock.recvmsg(_KEPT, socket.CMSG_SPACE(_PACKET_INFO))
    for level, kind, value in extras:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            source = socket.inet_pton(socket.AF_INET6, sender[0].partition("%")[0])
            return _whole(sock.proto, source, value[:16], data)
    return b""


def parse(packet: bytes) -> Packet | None:
    """What a packet is for; None for what is none."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        header, protocol = (packet[0] & 15) * 4, packet[9]
        family, sender, target = socket.AF_INET, packet[12:16], packet[16:20]
    elif version == 6 and len(packet) >= _IPV6_HEADER.size:
        header, protocol = _IPV6_HEADER.size, packet[6]
        family, sender, target = socket.AF_INET6, packet[8:24], packet[24:40]
    else:
        return None
    segment = packet[header:]
    if header < 20 or len(segment) < 4 or protocol not in (TCP, UDP):
        return None
    port = struct.unpack_from("!H", segment, 2)[0]
    return Packet(protocol, family, sender, target, port, segment)


def no_route(packet: Packet) -> bytes:
    """The message by which a router refuses an IPv6 packet, to its sender, as from itself."""
    inner = _whole(packet.protocol, packet.sender, packet.target, packet.segment[:20])
    message = struct.pack("!BBHI", 1, 0, 0, 0) + inner
    covered = packet.sender * 2 + struct.pack("!II", len(message), ICMPV6) + message
    covered += bytes(len(covered) % 2)
    total = sum(struct.unpack(f"!{len(covered) // 2}H", covered))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]


def _whole(protocol: int, sender: bytes, target: bytes, data: bytes) -> bytes:
    return _IPV6_HEADER.pack(6 << 28, len(data), protocol, _HOPS, sender, target) + data
