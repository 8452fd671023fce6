"""Where a registry keeps its files: often another host, which only its own pages tell."""

from __future__ import annotations

import html
import json
import re
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urljoin

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.registries.access import Address

_LIMIT = 20.0
_MOST = 32 * 1024 * 1024
_LINK = re.compile(r"""<a\s[^>]*href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)

PIP_PAGE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
NPM_PAGE = "application/vnd.npm.install-v1+json, application/json;q=0.5"


def fetch(
    registry: Address, url: str, accept: str, certificates: str | None
) -> tuple[str, str] | None:
    """A page's final address and text; None if the registry has no such page."""
    headers = {"accept": accept, "user-agent": "holdfast"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http or https: see Address
    if registry.authorization:
        request.add_unredirected_header("authorization", registry.authorization)
    context = ssl.create_default_context(cafile=certificates) if registry.secure else None
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT, context=context) as answer:  # noqa: S310
            return str(answer.url), answer.read(_MOST).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 405):
            return None
        raise SandboxUnavailable(
            f"the registry {registry.host} answers {error.code}", hint="look at its settings"
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise SandboxUnavailable(
            f"the registry {registry.host} can't be reached: {reason}",
            hint="sandboxes reach registries straight from this machine, not through a proxy",
        ) from None


def pip_files(registry: Address, package: str, certificates: str | None) -> list[Address]:
    """The hosts from which an index's files of a package come."""
    page = fetch(registry, f"{registry.url.rstrip('/')}/{package}/", PIP_PAGE, certificates)
    if page is None:
        return []
    address, text = page
    links: list[str] = []
    data = _json(text)
    if data is None:
        links = [html.unescape(found) for found in _LINK.findall(text)]
    else:
        links = [str(file.get("url", "")) for file in data.get("files", [])]
    return _addresses(address, [address, *links])


def npm_files(registry: Address, package: str, certificates: str | None) -> list[Address]:
    """The hosts from which a registry's files of a package come."""
    base = f"{registry.url.rstrip('/')}/{package.replace('/', '%2f')}"
    page = fetch(registry, f"{base}/latest", "application/json", certificates)
    page = page or fetch(registry, base, NPM_PAGE, certificates)
    if page is None:
        return []
    address, text = page
    data = _json(text) or {}
    versions: list[Any] = [data, *dict[str, Any](data.get("versions") or {}).values()]
    links = [str(dict[str, Any](v.get("dist") or {}).get("tarball", "")) for v in versions]
    return _addresses(address, [address, *links])


def _json(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _addresses(base: str, links: list[str]) -> list[Address]:
    found: dict[tuple[str, int], Address] = {}
    for link in links:
        address = Address.of(urljoin(base, link)) if link else None
        if address is not None:
            found.setdefault((address.host, address.port), address)
    return list(found.values())
