"""What a sandbox needs to use a registry: hosts it may reach, and settings for the tool inside."""

from __future__ import annotations

import base64
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from holdfast.errors import UsageError
from holdfast.sandbox.network import AllowedHost, Network

_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Address:
    """A registry's address, apart from what it carries of a user."""

    url: str
    """Without user and password."""
    host: str
    port: int
    secure: bool
    authorization: str | None = field(default=None, repr=False)

    @staticmethod
    def of(text: str) -> Address | None:
        """From an address as it is configured; None for what is not reached by HTTP."""
        parts = urlsplit(text.strip())
        if parts.scheme not in _PORTS:
            return None
        try:
            port = parts.port or _PORTS[parts.scheme]
        except ValueError:
            port = 0
        if not parts.hostname or not port:
            raise UsageError(f"{_without_user(text)!r} is no address of a registry")
        host = parts.hostname
        if is_loopback(host):
            host = (
                "127.0.0.1"  # the one name of this machine that sandboxes do not answer themselves
            )
        netloc = host if port == _PORTS[parts.scheme] else f"{host}:{port}"
        url = urlunsplit((parts.scheme, netloc, parts.path, parts.query, ""))
        secret = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            secret = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return Address(url, host, port, parts.scheme == "https", secret)

    def allowed(self, ca: str | None = None) -> AllowedHost:
        """The rule that lets a sandbox reach it, wherever the machine's settings have it be."""
        headers = {"authorization": self.authorization} if self.authorization else {}
        to = None
        if headers and not self.secure:
            to = f"{_resolved(self.host)}:{self.port}"  # in the clear only to one known address
        return AllowedHost(self.host, (self.port,), headers, to, private=True, ca=ca)


def is_loopback(host: str) -> bool:
    """Whether a name means this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _resolved(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UsageError(f"the registry {host} can't be found: {error}") from error


def _without_user(text: str) -> str:
    scheme, _, rest = text.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class Access:
    """Hosts to allow and variables to set. `pip | npm` is both."""

    allow: tuple[AllowedHost, ...]
    env: Mapping[str, str]

    @property
    def network(self) -> Network:
        """An allow-list of just these hosts."""
        return Network(self.allow)

    def __or__(self, other: Access) -> Access:
        return Access(merged((*self.allow, *other.allow)), {**self.env, **other.env})


def merged(hosts: Iterable[AllowedHost]) -> tuple[AllowedHost, ...]:
    """One rule a host and port: the first that adds headers, or else the first."""
    found: dict[tuple[str, tuple[int, ...]], AllowedHost] = {}
    for host in hosts:
        key = (host.name, host.ports)
        known = found.get(key)
        if known is None:
            found[key] = host
        elif host.headers and not known.headers:
            found[key] = replace(host, ca=host.ca or known.ca)
    return tuple(found.values())


def own_certificates(path: str | None) -> str | None:
    """A tool's file of certificates, if it has one of its own."""
    return path if path and Path(path).is_file() else None
