"""The `[sandbox]` section: how this machine's sandboxes are made unless a call says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast import config
from holdfast.durations import seconds

BackendName = Literal["auto", "namespace", "gvisor", "microvm"]
DEFAULT_POOL = 2
DEFAULT_MOST = 256
IsolationName = Literal["namespace", "gvisor", "microvm"]


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of this process's sandboxes."""

    backend: BackendName = "auto"
    min_isolation: IsolationName | None = None
    """Never less than this, whatever works here."""
    pool: int = DEFAULT_POOL
    """Sandboxes kept ready."""
    max_sandboxes: int = DEFAULT_MOST
    """How many of this process may run at a time; further ones wait for their turn."""
    dir: str | None = None
    """Where their files, snapshots and leases are."""
    keep_records: str | None = None
    """How long what they did stays on record once they have stopped, such as "30d"; None: always.
    """

    @property
    def keep_seconds(self) -> float | None:
        return None if self.keep_records is None else seconds(self.keep_records)


def load() -> SandboxSettings:
    """From `holdfast.toml` and the environment."""
    return config.section("sandbox", SandboxSettings)
