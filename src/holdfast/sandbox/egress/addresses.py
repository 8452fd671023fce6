"""Which addresses may be connected to: resolved once, checked, and then used as they are.

The address that was checked is the address that is connected to, so a name that answers
differently the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

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
