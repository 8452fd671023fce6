"""Each template in an empty folder: init, its own test, a run that is killed and goes on, doctor."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.ready.init_project import TEMPLATES
from waiting import until

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "durable": ("answer", {"ticket": {"customer": "ada", "text": "A-1 broke: 40 back"}}),
    "code": ("solve", {"task": "print 42"}),
    "repo": ("mend", {"repo": "shop", "task": "The total of two prices is wrong"}),
    "batch": ("classify_all", {"texts": ["The lamp broke", "Thank you!"]}),
}
"""What is started, killed, and goes on. The other templates have no run, or one that needs a
gateway."""


class Project:
    def __init__(self, folder: Path, template: str) -> None:
        self.folder = folder
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOLDFAST_") and not name.endswith("_API_KEY")
        }
        self.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what a user has: plain pytest
        self.holdfast("init", str(folder), "--template", template, "--yes", cwd=folder.parent)
        self.environment["HOLDFAST_PROFILE"] = "ci"

    def holdfast(self, *arguments: str, cwd: Path | None = None, code: int = 0) -> str:
        return self.call(*HOLDFAST, *arguments, cwd=cwd, code=code)

    def call(self, *command: str, cwd: Path | None = None, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def worker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*HOLDFAST, "worker", "agent.py", "--quiet"], cwd=self.folder, env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, id: str) -> dict[str, Any]:
        return json.loads(self.holdfast("runs", "show", id, "--json"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_tested_runs_is_killed_goes_on_and_is_ready(
    template: str, tmp_path: Path
) -> None:
    project = Project(tmp_path / "desk", template)
    assert len([p for p in project.folder.rglob("*") if p.is_file()]) <= 8
    if template == "repo":
        project.environment["HOLDFAST_SANDBOX_BACKEND"] = "namespace"
        made = "import pathlib, test_agent; test_agent.make_repo(pathlib.Path('shop'))"
        project.call(sys.executable, "-c", made)
    project.call(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_agent.py")
    if template in RUNS:
        _killed_and_goes_on(project, *RUNS[template])
    elif template != "bring-your-own":
        assert project.call(sys.executable, "agent.py").strip()
    del project.environment["HOLDFAST_PROFILE"]
    report = json.loads(project.holdfast("doctor", "--json"))
    assert report["profile"] == "prod" and report["ok"], report["points"]


def _killed_and_goes_on(project: Project, flow: str, given: dict[str, Any]) -> None:
    id = project.holdfast(
        "run", f"agent.py:{flow}", "--input", json.dumps(given), "--detach"
    ).strip()
    first = project.worker()
    try:
        until(lambda: _begun(project, id), "the run's first step, or its child")
    finally:
        first.kill()
        first.wait()
    second = project.worker()
    try:
        until(lambda: _ended(project, id), "the run's end")
    finally:
        second.kill()
        second.wait()
    assert project.run(id)["status"] == "completed", project.run(id)


def _begun(project: Project, id: str) -> bool:
    done = any(step["status"] == "completed" for step in project.run(id)["steps"])
    return done or len(json.loads(project.holdfast("runs", "list", "--json"))["runs"]) > 1


def _ended(project: Project, id: str) -> bool:
    waiting = json.loads(project.holdfast("approvals", "list", "--json"))["approvals"]
    for each in waiting:
        if each["status"] == "pending":
            project.holdfast("approvals", "approve", each["id"], "--by", "test")
    return project.run(id)["status"] in ("completed", "failed", "cancelled", "stuck")
