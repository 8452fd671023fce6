"""The sandbox backend of tests that are not about backends.

`auto` takes the strongest: gVisor, where it is installed, at four times the CPU of namespaces for
every verdict of the code agent. Each backend has its conformance and abuse suites, and each agent a
test on gVisor; everything else is about what is done in a sandbox, not about its walls.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from holdfast.sandbox import Host

VARIABLE = "HOLDFAST_SANDBOX_BACKEND"


async def _namespaces_work(state: Path) -> bool:
    host = Host(state, pool=0)
    try:
        return (await host.probe("namespace")).probe.works
    finally:
        host.close()


def choose() -> None:
    """Say it to this process and all that come of it, unless it was said already."""
    if VARIABLE in os.environ:
        return
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        if asyncio.run(_namespaces_work(Path(folder))):
            os.environ[VARIABLE] = "namespace"
