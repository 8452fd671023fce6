"""What callers pass for commands and files, checked before it is sent inside."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping

from holdfast.errors import UsageError
from holdfast.sandbox.namespace.view import WORKSPACE

_MOST_ARGUMENTS = 1024 * 1024


def inside(path: str) -> str:
    """A path in the sandbox: absolute, or below the workspace."""
    if "\0" in path:
        raise UsageError("a path can't hold a zero byte")
    return posixpath.normpath(posixpath.join(WORKSPACE, path))


def checked_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"{name!r} is no environment variable")
    return dict(env)


def check_arguments(argv: tuple[str, ...]) -> None:
    if any("\0" in word for word in argv):
        raise UsageError("an argument can't hold a zero byte")
    if not argv[0]:
        raise UsageError("no command given")
    if sum(len(os.fsencode(word)) + 1 for word in argv) > _MOST_ARGUMENTS:
        raise UsageError(
            f"the arguments are longer than {_MOST_ARGUMENTS} bytes",
            hint="write them to a file in the sandbox, or pass them as stdin",
        )
