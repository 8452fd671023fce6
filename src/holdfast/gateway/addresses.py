"""Addresses a request may name: no private, loopback, link-local or metadata ones.

The gateway itself fetches nothing a client names. Providers do fetch image URLs, though, and a
provider on our own network (vLLM, llama.cpp, Ollama) would fetch them from inside it.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, cast
from urllib.parse import urlsplit

from holdfast.errors import UsageError
from holdfast.gateway.messages import FilePart, ImagePart, Message, ToolResultPart

_LOCAL_NAMES = ("localhost", "metadata", "instance-data", "ip6-localhost")
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet")
FORBIDDEN = (
    "api_base", "base_url", "api_key", "api_version", "extra_headers", "extra_body",
    "custom_llm_provider", "organization", "endpoint", "host", "proxy",
)  # fmt: skip
"""Body fields by which other gateways let a client choose the upstream: refused by name."""


def check_image_url(url: str) -> None:
    """Raise UsageError for an image URL that is not plainly a public http(s) address."""
    if url.startswith("data:"):
        return
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _refused("an image URL", "it can't be read") from None
    if parts.scheme in ("gs", "s3"):
        return  # a bucket of the provider's own cloud, read with the caller's rights there
    if parts.scheme not in ("http", "https"):
        raise _refused("an image URL", "only https:, http: and data: are taken")
    if not host or "%" in host or parts.username is not None:
        raise _refused("an image URL", "it names no plain host")
    name = host.rstrip(".").lower()
    if (
        name in _LOCAL_NAMES
        or name.endswith(_LOCAL_SUFFIXES)
        or ("." not in name and ":" not in name)
    ) and not _is_number(name):
        raise _refused("an image URL", f"{name!r} is a local name")
    address = _address(name)
    if address is not None and not _is_public(address):
        raise _refused("an image URL", f"{name!r} is no public address")


def _refused(what: str, why: str) -> UsageError:
    return UsageError(f"{what} was refused: {why}", hint="send the picture itself, as base64")


def _is_number(name: str) -> bool:
    return _address(name) is not None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a host is, in any spelling the C library takes: 127.1, 0x7f.0.0.1, 2130706433."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in ipaddress.IPv6Network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return address.is_global and not address.is_multicast


def check_messages(messages: tuple[Message, ...]) -> None:
    """Check every image's and file's URL of canonical messages."""
    for message in messages:
        for part in message.parts:
            pieces = part.content if isinstance(part, ToolResultPart) else (part,)
            for piece in pieces:
                if isinstance(piece, ImagePart | FilePart) and piece.url is not None:
                    check_image_url(piece.url)


def check_body(value: object) -> None:
    """Check every image URL of a raw body, wherever it hides: any `image`-ish object's URL."""
    if isinstance(value, list):
        for one in cast("list[Any]", value):
            check_body(one)
    elif isinstance(value, dict):
        for name, one in cast("dict[str, Any]", value).items():
            if name in ("url", "image_url", "file_url", "fileUri") and isinstance(one, str):
                check_image_url(one)
            elif isinstance(one, dict | list):
                check_body(one)  # pyright: ignore[reportUnknownArgumentType]


def check_fields(body: dict[str, Any]) -> None:
    """Refuse fields that try to choose the upstream or its key."""
    for name in FORBIDDEN:
        if name in body:
            raise UsageError(
                f"{name!r} was refused: a client can't choose the upstream",
                hint="providers are configured where the gateway runs",
            )
