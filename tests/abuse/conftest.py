"""After every attack the host must be as it was, within two seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.fixtures import backend, sandbox_state
from sandbox.support import shared_host

__all__ = ["backend", "baseline", "sandbox_state"]

BACK_TO_BASELINE = 2.0


def traces() -> dict[str, object]:
    """What sandboxes of this test process have outside themselves."""
    host = shared_host()
    # os.walk, unlike glob, does not mind folders of the other test worker's that vanish meanwhile.
    roots = [at for at, _, _ in os.walk("/sys/fs/cgroup") if host.folder.name in Path(at).name]
    return {
        "records": sorted(os.listdir(host.folder.path / "sandboxes")),
        "cgroups": sorted(str(c) for root in roots for c in Path(root).glob("sbx_*")),
        "mounts": [
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if str(host.state) in line or "/sbx_" in line
        ],
        "bundles": sorted(str(p) for p in host.folder.path.glob("gvisor/bundles/*")),
        "sandboxes": sorted(host.sandboxes),
    }


@pytest.fixture(autouse=True)
def baseline(sandbox_state: str) -> Iterator[None]:
    before = traces()
    yield
    deadline = time.monotonic() + BACK_TO_BASELINE
    while (after := traces()) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert after == before, "something was left behind"
