"""`python -m holdfast.ready.examination ORDER ANSWER`: a look at a project, in its own process.

The project's modules are carried out here, with what they print and whatever they leave in memory;
whoever asked reads the answer from a file. ORDER is JSON: the project's folder, what is asked for
(a tier of the doctor, or the blueprint), the points.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from holdfast.errors import HoldfastError
from holdfast.ready import prod_baseline, project, static_points
from holdfast.ready.look import Look
from holdfast.ready.points import BLUEPRINT, Finding, Tier
from holdfast.ready.source_code import Sources


def main(order: str, answer: str) -> int:
    """Carry out the order, and write what was found."""
    given = json.loads(order)
    found: dict[str, Any]
    try:
        found = _examined(given)
    except HoldfastError as error:
        found = {"problem": error.message, "hint": error.hint}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the project's own
        last = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {error}\n  in {last.filename}, line {last.lineno}"
        found = {"problem": f"the project can't be loaded: {words}", "hint": None}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
    return 0


def _examined(given: dict[str, Any]) -> dict[str, Any]:
    if given["tier"] == BLUEPRINT:
        from holdfast.ready.blueprint import picture

        loaded = project.load(Path(given["root"]), tuple(given["app"]))
        return {"picture": picture(Sources(loaded), history=given["history"])}
    begun = time.monotonic()
    tier, points = cast(Tier, given["tier"]), set(given["points"])
    loaded = project.load(Path(given["root"]), tuple(given["app"]))
    sources = Sources(loaded)
    findings: list[Finding] = []
    if tier == "S":
        findings += [f for f in prod_baseline.departures(loaded.root) if f.point in points]
        for point, check in static_points.CHECKS.items():
            if point in points:
                look = Look(loaded, point, tier)
                check(look, sources)
                findings += _told(look)
    elif tier == "R":
        from holdfast.ready import store_points

        findings += store_points.examine(loaded, sources, points)
    else:
        from holdfast.ready import drill

        findings += drill.examine(loaded, sources, points)
    return {
        "findings": [{**asdict(each)} for each in findings],
        "profile": loaded.profile,
        "layers": static_points.layers(sources),
        "waivers": [asdict(each) for each in loaded.settings.waivers],
        "seconds": time.monotonic() - begun,
    }


def _told(look: Look) -> list[Finding]:
    assert look.findings, f"{look.point} was looked at, and nothing said"
    return look.findings


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
