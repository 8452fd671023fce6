"""What a production profile has to say: each line, why, and the point it counts for.

`holdfast init` fills these in; whoever takes one out or weakens it is told which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import config
from holdfast.ready.points import Finding

PROFILE = "prod"


@dataclass(frozen=True, slots=True)
class Line:
    """One setting of the baseline."""

    section: str
    key: str
    point: str
    holds: Callable[[Any], bool]
    """Whether a value is at least as strict; None if it is not set."""
    wanted: str
    """What it should say, as it is written."""
    why: str


def _per(kind: str) -> Callable[[Any], bool]:
    return lambda budgets: any(each.get("per") == kind for each in budgets or ())


BASELINE: tuple[Line, ...] = (
    Line("runtime", "step_timeout", "HF06", bool, 'step_timeout = 600', "a step may hang"),
    Line("gateway", "budgets", "HF08", _per("run"), '[[…budgets]] per = "run"',
         "a run may spend without a limit"),
    Line("gateway", "budgets", "HF08", _per("day"), '[[…budgets]] per = "day"',
         "a day may cost without a limit"),
    Line("gateway", "redact", "HF23", bool, "redact = ['…']",
         "what looks like your customers' data is kept in prompts"),
    Line("sandbox", "min_isolation", "HF16", bool, 'min_isolation = "namespace"',
         "any backend that works is taken"),
    Line("sandbox", "keep_records", "HF28", bool, 'keep_records = "30d"',
         "what sandboxes did is kept for ever"),
    Line("server", "require_token", "HF16", lambda value: value is True, "require_token = true",
         "a server without a token would start"),
    Line("retention", "keep", "HF28", bool, 'keep = "90d"', "runs are kept for ever"),
    Line("project", "backups", "HF28", bool, 'backups = "backups"',
         "nothing says that the store is backed up"),
    Line("project", "egress", "HF14", lambda value: value is not None, "egress = []",
         "nobody said what sandboxes may reach"),
)  # fmt: skip


def departures(root: Path) -> list[Finding]:
    """The lines of the baseline that the production profile does not hold to."""
    if str(config.read()["profile"]) != PROFILE:
        return []
    settings, found = config.read(), list[Finding]()
    for line in BASELINE:
        value = settings.get(line.section, {}).get(line.key)
        if not line.holds(value):
            words = (
                f"[profiles.{PROFILE}.{line.section}] departs from the baseline: no {line.wanted}"
            )
            place = _line(root / config.FILE, line.section)
            found.append(
                Finding(line.point, "S", "fail", f"{words} ({line.why})", config.FILE, place)
            )
    return found


def _line(file: Path, section: str) -> int:
    """Where the profile's section begins in the file; else where the file does."""
    if file.exists():
        for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if text.strip().startswith(f"[profiles.{PROFILE}.{section}]"):
                return number
    return 1
