"""Addresses of servers in sandboxes: a name for each port, which is its own permission.

    8000-sbx-01kab…-q7d2….localhost:7420

The last part of the name is a signature that only processes of this user can make (the key lies in
their state folder), so whoever has the address may use it, and nobody can guess another. Each port
is an origin of its own to a browser: neither the inspector's nor another sandbox's. Names below
`localhost` lead browsers and curl to this machine; elsewhere a wildcard name does
(`[server] sandbox_domain`). `holdfast serve` answers to these names, and says here where it is.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Refused, SandboxUnavailable, UsageError

_NAME = re.compile(r"(\d{1,5})-sbx-([0-9a-hjkmnp-tv-z]{26})-([a-z2-7]{20})\.(.+)")
_SIGNATURE = 20  # characters of five bits


@dataclass(frozen=True, slots=True)
class Address:
    """What a name stands for, if its signature is right."""

    sandbox_id: str
    port: int
    signature: str
    domain: str

    @staticmethod
    def parse(host: str) -> Address | None:
        """The address that a Host header names; None if it is no such name."""
        name = host.lower().rpartition(":")[0] if re.search(r":\d*$", host) else host.lower()
        found = _NAME.fullmatch(name.rstrip("."))
        if found is None:
            return None
        return Address(f"sbx_{found[2].upper()}", int(found[1]), found[3], found[4])

    def check(self, state: Path) -> None:
        """Raises Refused unless this user's key signed it."""
        if not hmac.compare_digest(self.signature, _signature(state, self.sandbox_id, self.port)):
            raise Refused("this address was not given out here", hint="ask for it: sandbox.url(…)")


def name_of(state: Path, sandbox_id: str, port: int, domain: str) -> str:
    """The name of a port in a sandbox, signed."""
    if not 0 < port < 65536:
        raise UsageError(f"{port} is no port")
    label = sandbox_id.lower().replace("_", "-")
    return f"{port}-{label}-{_signature(state, sandbox_id, port)}.{domain}"


def _signature(state: Path, sandbox_id: str, port: int) -> str:
    message = f"port\n{sandbox_id}\n{port}".encode()
    digest = hmac.new(_key(state), message, hashlib.sha256).digest()
    return base64.b32encode(digest).decode().lower()[:_SIGNATURE]


def _key(state: Path) -> bytes:
    """This user's key, made once."""
    path = state / "ports.key"
    with suppress(FileNotFoundError):
        return path.read_bytes()
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = state / f"ports.{secrets.token_hex(8)}.draft"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(secrets.token_bytes(32))
    with suppress(FileExistsError):
        os.link(draft, path)  # whole or not at all, and the first to come wins
    draft.unlink()
    return path.read_bytes()


# --- which server answers to these names: a file each, locked as long as it runs ---


class Announcement:
    """Says that a server is there, until it is withdrawn or its process ends."""

    def __init__(self, state: Path, *, domain: str, port: int) -> None:
        folder = state / "servers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / f"{secrets.token_hex(8)}.json"
        draft = self._path.with_suffix(".draft")
        self._fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, json.dumps({"domain": domain, "port": port}).encode())
        draft.rename(self._path)

    def withdraw(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def url(state: Path, sandbox_id: str, port: int) -> str:
    """Where the server that runs here lets one reach a port of this sandbox."""
    for path in sorted(state.glob("servers/*.json"), key=_age):
        found = _server(path)
        if found is not None:
            name = name_of(state, sandbox_id, port, str(found["domain"]))
            return f"http://{name}:{found['port']}"
    raise SandboxUnavailable(
        "no server runs here that could lead to a sandbox's port",
        hint="start one beside this: `holdfast serve`; or connect with sandbox.dial(port)",
    )


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _server(path: Path) -> dict[str, object] | None:
    """What a server said of itself; one that has ended is forgotten."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return json.loads(file.read())
        path.unlink(missing_ok=True)
        return None
