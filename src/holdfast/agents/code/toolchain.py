"""What a program's sandbox needs beside the interpreter, installed once into a snapshot.

For node the bundler that TypeScript goes through, at a locked version; and in any language the
packages a task declares. They come from the machine's own registry, which is all the network
the installing sandbox gets; the sandboxes that start from the snapshot have none.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from holdfast.agents.code.languages import Language
from holdfast.agents.command_output import tail
from holdfast.errors import NotFound, SandboxError, UsageError
from holdfast.sandbox import Sandbox, Snapshot, default_host
from holdfast.sandbox.registries import npm_network, pip_network
from holdfast.sandbox.snapshots import get_snapshot

TOOLCHAIN = "/home/user/toolchain"
Make = Callable[[Sequence[str]], Awaitable[Snapshot]]
_TIME_LIMIT = "15m"
_PYTHON_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[\w,. -]+\])?(\s*(==|>=|<=|~=|!=|<|>)\s*[\w.*+!-]+,?)*"
)
_NODE_NAME = re.compile(r"(@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*(@[\w.^~<>=*+-]+)?")


async def ready(language: Language, packages: Sequence[str]) -> Snapshot | None:
    """The snapshot to start from, made if it is not there yet; None if nothing is needed."""
    check_packages(language, packages)
    if language.runtime == "python":
        if not packages:
            return None
        return await _kept(["python", sys.version, *sorted(packages)], _with_pip, packages)
    lock = _file("package-lock.json")
    bundler = await _kept(["node", lock], _with_bundler, ())
    if not packages:
        return bundler

    async def install(wanted: Sequence[str]) -> Snapshot:
        return await _with_npm(bundler, wanted)

    return await _kept(["node", lock, *sorted(packages)], install, packages)


def check_packages(language: Language, packages: Sequence[str]) -> None:
    """Names of the registry's packages only: no addresses, no paths, no options."""
    pattern = _PYTHON_NAME if language.runtime == "python" else _NODE_NAME
    for package in packages:
        if not pattern.fullmatch(package):
            raise UsageError(
                f"{package!r} is no package of the registry",
                hint="a name, with a version if you like: requests, requests==2.32.3, left-pad@1.3",
            )


# --- installing ---


async def _with_pip(packages: Sequence[str]) -> Snapshot:
    access = await pip_network()
    async with await Sandbox.create(
        network=access.network, env=access.env, timeout=_TIME_LIMIT, memory="2gb"
    ) as sandbox:
        command = ("python", "-m", "pip", "install", "--no-input", "--no-warn-script-location")
        await _install(sandbox, *command, "--disable-pip-version-check", *packages)
        return await sandbox.snapshot()


async def _with_bundler(_: Sequence[str]) -> Snapshot:
    access = await npm_network()
    async with await Sandbox.create(
        runtime="node", network=access.network, env=access.env, timeout=_TIME_LIMIT
    ) as sandbox:
        names = ("package.json", "package-lock.json")
        await sandbox.write_files({f"{TOOLCHAIN}/{name}": _file(name) for name in names})
        command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        await _install(sandbox, *command, cwd=TOOLCHAIN)
        return await sandbox.snapshot()


async def _with_npm(bundler: Snapshot, packages: Sequence[str]) -> Snapshot:
    access = await npm_network()
    async with await Sandbox.create(
        runtime="node",
        network=access.network,
        env=access.env,
        timeout=_TIME_LIMIT,
        memory="2gb",
        source=bundler,
    ) as sandbox:
        await _install(sandbox, "npm", "install", "--no-audit", "--no-fund", *packages)
        return await sandbox.snapshot()


async def _install(sandbox: Sandbox, *command: str, cwd: str | None = None) -> None:
    result = await sandbox.run(*command, cwd=cwd, timeout=_TIME_LIMIT)
    if not result.ok:
        said = tail(f"{result.stdout}\n{result.stderr}".strip(), 2000)
        raise SandboxError(
            f"the packages can't be installed ({result}):\n{said}",
            hint="are the names right, and is the package registry in reach?",
        )


def _file(name: str) -> str:
    folder = resources.files("holdfast.agents.code") / "node_toolchain"
    return (folder / name).read_text(encoding="utf-8")


# --- keeping ---


async def _kept(label: Sequence[str], make: Make, packages: Sequence[str]) -> Snapshot:
    """The snapshot of this label: kept from an earlier time, or made now, by one of us."""
    host = default_host()
    state = host.state
    backend = await host.choose("auto", None)  # a snapshot starts only where it was taken
    label = [backend.name, *label]
    name = hashlib.blake2b("\n".join(label).encode(), digest_size=12).hexdigest()
    note = state / "toolchains" / f"{name}.json"
    found = _find(note, state)
    if found is not None:
        return found
    async with _alone(note.with_suffix(".lock")):
        found = _find(note, state)
        if found is None:
            found = await make(packages)
            draft = note.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(json.dumps({"snapshot": found.id, "label": label}))
            draft.replace(note)
    return found


def _find(note: Path, state: Path) -> Snapshot | None:
    try:
        return get_snapshot(state, json.loads(note.read_text())["snapshot"])
    except (FileNotFoundError, NotFound):
        return None


@asynccontextmanager
async def _alone(path: Path) -> AsyncGenerator[None]:
    """Hold a lock that other processes heed too; it goes with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield
