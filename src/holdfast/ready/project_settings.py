"""The `[project]` section: what belongs to a user's project, and what its people decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.durations import seconds
from holdfast.errors import UsageError
from holdfast.ready.points import BY_ID, Waiver

SECTION = "project"


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """The `[project]` section: what belongs to the project, and what its people decided."""

    app: tuple[str, ...] = ()
    """Files or modules that define the workflows, as `holdfast worker` would be given them."""
    examples: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By workflow: arguments that a drill starts it with."""
    deployed: str | None = None
    """The git revision that is in production: what a rollback would go back to. By default the
    last commit whose Python files differ from what is there now."""
    egress: tuple[str, ...] = ()
    """The hosts that sandboxes of this project may be allowed to reach; none unless named."""
    backups: str | None = None
    """The folder that `holdfast store backup` writes to."""
    backup_every: str = "26h"
    """The newest backup may be so old."""
    waivers: tuple[Waiver, ...] = ()

    def __post_init__(self) -> None:
        for each in self.waivers:
            if each.point not in BY_ID:
                raise UsageError(f"a waiver names {each.point!r}", hint="points are HF01 to HF28")
            if len(each.until) != 10 or not (each.by and each.why):
                raise UsageError(
                    f"the waiver of {each.point} is not whole",
                    hint='say by, why, and until = "2027-01-31"',
                )
        seconds(self.backup_every)
