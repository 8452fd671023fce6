"""`holdfast doctor` on a project: each tier in a process of its own, judged here.

The project's code never runs in the doctor's process. A drill gets an environment without the
keys of providers, and a folder that is removed afterwards, whatever happened.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import config
from holdfast.errors import UsageError
from holdfast.ready.points import (
    BLUEPRINT,
    BY_ID,
    POINTS,
    TIERS,
    Finding,
    Point,
    Report,
    Waiver,
    judge,
)
from holdfast.ready.prod_baseline import PROFILE

LIMITS: dict[str, float] = {"S": 60.0, "R": 120.0, "D": 600.0, BLUEPRINT: 120.0}
"""Seconds that a tier may take before it is given up; what it should take is in the guide."""
_SECRET = re.compile(r"[A-Z0-9_]*(_API_KEY|_TOKEN|_SECRET|_PASSWORD|_BASE_URL)|AWS_.*|HOLDFAST_.*")


def chosen(only: Sequence[str]) -> tuple[Point, ...]:
    """The points asked for; all if none is named."""
    for each in only:
        if each.upper() not in BY_ID:
            raise UsageError(f"there is no point {each!r}", hint="points are HF01 to HF28")
    wanted = {each.upper() for each in only}
    return tuple(point for point in POINTS if not wanted or point.id in wanted)


def examine(
    root: Path,
    *,
    tiers: Collection[str],
    only: Sequence[str] = (),
    profile: str | None = None,
    app: Sequence[str] = (),
    baseline: frozenset[str] = frozenset(),
    store: str | None = None,
) -> Report:
    """Look at a project in these tiers, and judge what was found."""
    points = chosen(only)
    profile = profile or _profile(root)
    findings: list[Finding] = []
    last: dict[str, Any] = {}
    took: dict[str, float] = {}
    for tier in TIERS:
        if tier not in tiers:
            continue
        wanted = [point.id for point in points if tier in point.tiers]
        if not wanted:
            continue
        order = {"root": str(root), "tier": tier, "points": wanted, "app": list(app)}
        answer = _process(order, tier, root, profile, store)
        findings += [Finding(**each) for each in answer["findings"]]
        took[tier] = answer["seconds"]
        last = answer
    today = datetime.now(UTC).date().isoformat()
    waivers = [Waiver(**each) for each in last.get("waivers", ())]
    results = judge(points, findings, waivers=waivers, today=today, baseline=baseline)
    return Report(str(root), last.get("profile", ""), results, last.get("layers", ""), took)


def blueprint(
    root: Path, *, app: Sequence[str] = (), store: str | None = None, history: bool = True
) -> dict[str, Any]:
    """The picture of a project: see `holdfast.ready.blueprint`."""
    order = {"root": str(root), "tier": BLUEPRINT, "app": list(app), "history": history}
    return _process(order, BLUEPRINT, root, _profile(root), store)["picture"]


def _profile(root: Path) -> str | None:
    """The production profile if the file has one: that is what has to be ready."""
    if os.environ.get("HOLDFAST_PROFILE"):
        return None
    file = root / config.FILE
    if not file.exists():
        return None
    import tomllib

    try:
        return PROFILE if PROFILE in tomllib.loads(file.read_text()).get("profiles", {}) else None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None  # whoever reads the configuration says it better


def _process(
    order: dict[str, Any], tier: str, root: Path, profile: str | None, store: str | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as scratch:
        answer = Path(scratch) / "answer.json"
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if tier == "D":
            environ = {n: v for n, v in environ.items() if not _SECRET.fullmatch(n)}
            environ["HOLDFAST_STORE"] = str(Path(scratch) / "drill.db")
            environ["HOLDFAST_ENV_FILE"] = ""
            environ["HOLDFAST_DRILL_FOLDER"] = environ["TMPDIR"] = scratch
            environ["HOLDFAST_SANDBOX_DIR"] = str(Path(scratch) / "sandboxes")
            if "HOLDFAST_SANDBOX_BACKEND" in os.environ:
                environ["HOLDFAST_SANDBOX_BACKEND"] = os.environ["HOLDFAST_SANDBOX_BACKEND"]
        elif store is not None:
            environ["HOLDFAST_STORE"] = store
        if profile is not None:
            environ["HOLDFAST_PROFILE"] = profile
        command = [
            sys.executable,
            "-m",
            "holdfast.ready.examination",
            json.dumps(order),
            str(answer),
        ]
        process = subprocess.Popen(
            command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=LIMITS[tier])
        except subprocess.TimeoutExpired:
            said = f"it took longer than {LIMITS[tier]:g} s"
        finally:
            _end(process)
        if not answer.exists():
            raise UsageError(f"tier {tier} ended without an answer:\n{said[-2000:]}")
        found = json.loads(answer.read_text(encoding="utf-8"))
        if "problem" in found:
            raise UsageError(found["problem"], hint=found["hint"])
        return found


def _end(process: subprocess.Popen[str]) -> None:
    """The process and what it started, if any of it is still there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


# --- the baseline file -------------------------------------------------------------------------


def read_baseline(file: Path) -> frozenset[str]:
    """The findings that are known already."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))["known"]
        return frozenset(each["fingerprint"] for each in known)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no baseline {file}", hint="--write-baseline makes one of what fails now"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no baseline: {error}") from error


def write_baseline(file: Path, report: Report) -> int:
    """Take what fails now as known; how many findings that are."""
    known = [
        {
            "fingerprint": each.fingerprint,
            "point": each.point,
            "file": each.file,
            "message": each.message,
        }
        for result in report.results
        for each in result.findings
        if each.outcome == "fail"
    ]
    file.write_text(json.dumps({"known": known}, indent=2) + "\n", encoding="utf-8")
    return len(known)
