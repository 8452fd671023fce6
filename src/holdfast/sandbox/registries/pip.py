"""The index this machine's pip installs from, for sandboxes."""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
import subprocess
import sys

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.registries import pages
from holdfast.sandbox.registries.access import Access, Address, merged, own_certificates

_DEFAULT = re.compile(r"--index-url\s.*?\(default\s+(\S+?)\)", re.DOTALL)
_LIMIT = 60.0


async def pip_network(
    *packages: str, index_url: str | None = None, extra_index_urls: tuple[str, ...] | None = None
) -> Access:
    """What a sandbox needs to install packages from pip's configured index.

    The hosts of the files are learnt from the index's pages of `packages`, or else of one that
    every public index has. Indexes that are folders of this machine are left out: sandboxes do
    not see them.
    """
    return await asyncio.to_thread(_find, packages or ("pip",), index_url, extra_index_urls)


def _find(
    packages: tuple[str, ...], index_url: str | None, extra_index_urls: tuple[str, ...] | None
) -> Access:
    settings: dict[str, str] = {}
    if index_url is None or extra_index_urls is None:
        settings = configured(_ask("config", "list"))
    index = index_url or settings.get("index-url") or default_index(_ask("install", "--help"))
    extra = extra_index_urls
    if extra is None:
        extra = tuple(settings.get("extra-index-url", "").split())
    certificates = own_certificates(settings.get("cert"))
    indexes = [found for text in (index, *extra) if (found := Address.of(text)) is not None]
    hosts = [address.allowed(certificates) for address in indexes]
    for address in indexes:
        for package in packages:
            files = pages.pip_files(address, package, certificates)
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


def _ask(*words: str) -> str:
    """What pip says: this interpreter's, or else the one on the PATH."""
    for start in ([sys.executable, "-m", "pip"], [shutil.which("pip3") or "pip"]):
        try:
            done = subprocess.run(
                [*start, *words], capture_output=True, text=True, check=False, timeout=_LIMIT
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
