"""Many projects examined, each in a process of its own: forked from one that has loaded Holdfast."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HEALTHY = Path(__file__).parent / "healthy"

_SERVER = """
import json, os, sys
import holdfast.ready.drill, holdfast.ready.examination as examination, holdfast.ready.store_points
import holdfast.runtime.app, holdfast.gateway, pydantic
orders = json.load(sys.stdin)
for order, answer, environ in orders:
    child = os.fork()
    if child == 0:
        os.environ.update(environ)
        os.chdir(order["root"])
        os._exit(examination.main(json.dumps(order), answer))
    os.waitpid(child, 0)
"""


def examine_all(projects: dict[str, Path], tiers: str = "SR") -> dict[str, list[dict[str, Any]]]:
    """What each project's examination found, all points in these tiers."""
    from holdfast.ready.points import POINTS

    with tempfile.TemporaryDirectory() as scratch:
        orders = []
        for name, root in projects.items():
            for tier in tiers:
                points = [point.id for point in POINTS if tier in point.tiers]
                order = {"root": str(root), "tier": tier, "points": points, "app": []}
                orders.append((order, f"{scratch}/{name}.{tier}", {"HOLDFAST_PROFILE": "prod"}))
        environ = {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")}
        done = subprocess.run(
            [sys.executable, "-c", _SERVER], input=json.dumps(orders), env=environ,
            capture_output=True, text=True, timeout=380, check=False,
        )  # fmt: skip
        found: dict[str, list[dict[str, Any]]] = {}
        for name in projects:
            found[name] = []
            for tier in tiers:
                answer = Path(f"{scratch}/{name}.{tier}")
                assert answer.exists(), done.stdout + done.stderr
                said = json.loads(answer.read_text())
                assert "problem" not in said, said
                found[name] += said["findings"]
        return found


def failing(findings: list[dict[str, Any]]) -> set[str]:
    return {each["point"] for each in findings if each["outcome"] == "fail"}
