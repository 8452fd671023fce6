"""What a program's sandbox needs beside the interpreter: its packages, installed once."""

from __future__ import annotations

from holdfast.agents.code.languages import Language
from holdfast.errors import UsageError
from holdfast.sandbox import Snapshot


async def ready(language: Language, packages: tuple[str, ...]) -> Snapshot | None:
    """The snapshot to start from; made if it is not there yet. None: nothing is needed."""
    if language.runtime == "python" and not packages:
        return None
    raise UsageError("not yet")
