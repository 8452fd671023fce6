"""Where sandboxes keep what must outlive a function call: folders, leases and records on disk.

    <state>/hosts/<host>/lease              locked as long as the host process lives
                        /sandboxes/<id>.json
                        /view               the launcher's mount point
    <state>/snapshots/<id>/                 kept until deleted
    <state>/packages/<hash>/                what sandboxes can import, made once

The lease is the kernel's: it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from holdfast.ids import new_id
from holdfast.sandbox.settings import load


def default_state() -> Path:
    """What the settings name (`HOLDFAST_SANDBOX_DIR`), or the place for such things here."""
    chosen = load().dir
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast/sandbox")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base, "holdfast/sandbox")


class HostFolder:
    """This process's folder, held by a lease."""

    def __init__(self, state: Path) -> None:
        self.name = new_id("host")
        self.path = state / "hosts" / self.name
        # Whoever may not enter the first may not enter the second, which sandboxes must read.
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        (state / "snapshots").mkdir(exist_ok=True, mode=0o755)
        self.path.mkdir(parents=True, mode=0o700)
        # Locked before it has its name: a lease that nobody holds is one to sweep up after.
        draft = self.path / "lease.draft"
        self._lease = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lease, fcntl.LOCK_EX)
        draft.rename(self.path / "lease")
        (self.path / "sandboxes").mkdir()
        (self.path / "view").mkdir()

    def write(self, name: str, data: Any) -> None:
        """Write a JSON file, whole or not at all."""
        target = self.path / name
        draft = target.with_suffix(".draft")
        draft.write_text(json.dumps(data))
        draft.rename(target)

    def record(self, sandbox_id: str, data: dict[str, Any]) -> None:
        self.write(f"sandboxes/{sandbox_id}.json", data)

    def forget(self, sandbox_id: str) -> None:
        (self.path / f"sandboxes/{sandbox_id}.json").unlink(missing_ok=True)

    def release(self) -> None:
        """Give up the lease: whoever sweeps next removes the folder."""
        os.close(self._lease)
