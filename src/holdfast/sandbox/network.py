"""What a sandbox may reach: nothing, or a list of hosts, each with ports and added headers.

    Network(allow=["api.example.com", "*.example.org:8443"])
    Network(allow=[AllowedHost("api.example.com", headers={"authorization": "Bearer …"})])
    Network(allow=[AllowedHost("models.internal", ports=[80], to="127.0.0.1:7420")])

Names are compared as DNS does: whole labels, case and a final dot aside. A name that resolves to
a private, link-local or metadata address is refused unless its rule says `private=True` or names
the address with `to=`. How the rules are enforced is in `egress/`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import UsageError

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
DEFAULT_PORTS = (80, 443)


def plain_name(name: str) -> str | None:
    """A host's name in the one form we compare, or None if it is none."""
    try:
        text = name.encode("idna").decode("ascii") if not name.isascii() else name
    except UnicodeError:
        return None
    text = text.lower().removesuffix(".")
    labels = text.split(".")
    if not text or len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    return text


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One allowed host: a name, `*.name` for everything below it, or an address."""

    name: str
    ports: tuple[int, ...] = DEFAULT_PORTS
    headers: Mapping[str, str] = field(default_factory=dict[str, str], hash=False, repr=False)
    """Set on every HTTP request to the host, outside the sandbox: secrets never enter it."""
    to: str | None = None
    """Connect to this `address:port` instead of what the name resolves to."""
    private: bool = False
    """Allow private addresses."""
    ca: str | None = None
    """A file of certificates to trust for it, where the system's are not enough."""

    def __post_init__(self) -> None:
        wildcard = self.name.startswith("*.")
        plain = plain_name(self.name[2:] if wildcard else self.name)
        if plain is None:
            raise UsageError(
                f"{self.name!r} is no host name", hint='"api.example.com" or "*.example.com"'
            )
        object.__setattr__(self, "name", f"*.{plain}" if wildcard else plain)
        object.__setattr__(self, "ports", tuple(self.ports))
        if not self.ports or not all(0 < port < 65536 and port != 53 for port in self.ports):
            raise UsageError(f"{self.ports!r} are no ports", hint="1 to 65535, without 53")
        for key, value in self.headers.items():
            if not _HEADER.fullmatch(key) or any(c in value for c in "\r\n\0"):
                raise UsageError(f"{key!r} is no header that can be sent")
        if self.to is not None:
            self.target()

    def target(self) -> tuple[str, int]:
        """`to` as address and port."""
        address, _, port = (self.to or "").rpartition(":")
        try:
            ipaddress.ip_address(address.strip("[]"))
            return address.strip("[]"), int(port)
        except ValueError:
            raise UsageError(f"to={self.to!r} is no address:port") from None

    def matches(self, name: str) -> bool:
        """Whether a plain name is meant by this rule."""
        if self.name.startswith("*."):
            return name.endswith(self.name[1:]) and name != self.name[2:]
        return name == self.name

    @staticmethod
    def parse(text: str) -> AllowedHost:
        """`name` or `name:port`."""
        name, colon, port = text.rpartition(":")
        if not colon:
            return AllowedHost(text)
        if not port.isdigit():
            raise UsageError(f"{text!r} is no host", hint='write "name" or "name:port"')
        return AllowedHost(name, (int(port),))


@dataclass(frozen=True, slots=True)
class Network:
    """The allow-list; empty means no network at all."""

    allow: tuple[AllowedHost, ...] = ()

    def __init__(self, allow: Iterable[str | AllowedHost] = ()) -> None:
        hosts = tuple(AllowedHost.parse(h) if isinstance(h, str) else h for h in allow)
        object.__setattr__(self, "allow", hosts)

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port something listens on inside; the usual ones too, so refusals are seen."""
        if not self.allow:
            return ()
        return tuple(sorted({*DEFAULT_PORTS, *(p for host in self.allow for p in host.ports)}))

    def rule(self, name: str, port: int | None = None) -> AllowedHost | None:
        """The first rule for this name (and port), or None."""
        plain = plain_name(name)
        if plain is None:
            return None
        for host in self.allow:
            if host.matches(plain) and (port is None or port in host.ports):
                return host
        return None

    def describe(self) -> tuple[str, ...]:
        """The allowed hosts as `name:port`, without their headers."""
        return tuple(f"{host.name}:{port}" for host in self.allow for port in host.ports)
