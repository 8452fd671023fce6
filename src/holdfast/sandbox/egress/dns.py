"""DNS: the questions of a sandbox, and the addresses that a name may be connected to.

Messages are read and written as far as one question and one answer go. A name is resolved once
and its address checked; the address that was checked is the address that is connected to, so a
name that answers differently the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_HEADER = struct.Struct("!HHHHHH")
A, ANY = 1, 255
NO_ERROR, FORMAT_ERROR, NO_SUCH_NAME, REFUSED = 0, 1, 3, 5
_TIME_TO_LIVE = 5


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a client."""

    id: int
    name: str | None
    """None where the labels hold bytes no host name has."""
    kind: int
    shown: str
    """The name for people, whatever is in it."""
    raw: bytes
    """The question as it was asked, to be repeated in the answer."""


def parse_question(message: bytes) -> Question | None:
    """The question in a message, or None if it is no plain query."""
    if len(message) < _HEADER.size or len(message) > 512:
        return None
    id, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
    if flags & 0xF800 or questions != 1 or answers:
        return None
    labels: list[bytes] = []
    place = _HEADER.size
    while place < len(message) and (length := message[place]):
        if length > 63 or place + 1 + length > len(message):
            return None
        labels.append(message[place + 1 : place + 1 + length])
        place += 1 + length
    if place + 5 > len(message):
        return None
    kind = struct.unpack_from("!H", message, place + 1)[0]
    shown = repr(b".".join(labels))[2:-1]
    return Question(id, _joined(labels), kind, shown, message[_HEADER.size : place + 5])


def _joined(labels: list[bytes]) -> str | None:
    """The labels as a name; a label with a dot or a zero in it would read as another name."""
    if not labels:
        return None
    allowed = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    if any(byte not in allowed for label in labels for byte in label):
        return None
    return b".".join(labels).decode("ascii")


def answer(question: Question, code: int, address: str | None = None) -> bytes:
    """An answer: an address for an A question, nothing for others, or an error code."""
    record = b""
    if address is not None and question.kind in (A, ANY):
        packed = bytes(int(part) for part in address.split("."))
        record = struct.pack("!HHHIH", 0xC00C, A, 1, _TIME_TO_LIVE, 4) + packed
    flags = 0x8180 | code  # an answer, recursion available
    header = _HEADER.pack(question.id, flags, 1, 1 if record else 0, 0, 0)
    return header + question.raw + record


# --- addresses ---

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_REFUSED = [
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, cloud metadata of some
        "168.63.129.16/32",  # a cloud's wire server, on a public address
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",
        "3fff::/20",
    )
]
_UNICAST = ipaddress.ip_network("2000::/3")
"""All the IPv6 there is in public: site-local, unique local, IPv4-translated (::ffff:0:0:0/96),
local translation (64:ff9b:1::/48) and everything reserved lie outside."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet, seen through every way of writing it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    inner = _inner(address)
    if inner is not None:
        return is_public(str(inner))
    if address.version == 6 and address not in _UNICAST:
        return False
    if any(address.version == net.version and address in net for net in _REFUSED):
        return False
    return address.is_global and not address.is_multicast


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address an IPv6 address stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _TRANSLATED or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


async def resolve(name: str, port: int) -> list[str]:
    """The addresses of a name, by the host's own resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
