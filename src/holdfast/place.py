"""Where this process's records go: one store for runs, model calls and sandboxes.

A leaf, because the runtime opens stores while the gateway and the sandbox, which know nothing
of it, write theirs to the same one. In order: the store opened last in this process, the one
HOLDFAST_STORE or `holdfast.toml` names, `.holdfast/holdfast.db` in this folder.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from holdfast import config

DEFAULT_STORE = ".holdfast/holdfast.db"

_opened: list[Path] = []
_leaving: dict[Path, list[Callable[[], Awaitable[None]]]] = {}


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the store is unless somebody says otherwise."""
    return config.store(environ) or Path(DEFAULT_STORE)


def opened_store() -> Path | None:
    """The store opened last in this process, if one is open."""
    return _opened[-1] if _opened else None


def current_store() -> Path:
    """The store this process works on; see the module's text."""
    return opened_store() or default_store()


def enter(path: Path) -> None:
    """A store was opened; the runtime says so, nobody else."""
    _opened.append(path)


def on_leave(path: Path, close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` called when the store at `path`, open now, is closed."""
    _leaving.setdefault(path, []).append(close)


async def leave(path: Path) -> None:
    """A store was closed: whoever wrote to it as well lets go of it."""
    _opened.remove(path)
    if path not in _opened:
        for close in _leaving.pop(path, []):
            await close()
