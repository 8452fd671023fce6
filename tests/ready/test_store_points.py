"""The points as far as the store tells, on stores broken in exactly one."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.records.sandboxes import SandboxRecord
from holdfast.store import opener
from holdfast.store.inspection import RunQuery
from ready.broken import Edit, edit, make
from ready.examining import examine_all, failing

SECRET: list[Edit] = [
    ("holdfast.toml", "A-1 arrived broken", "my key is sk-abcdef0123456789abcdef, it broke")
]
STORE = ".holdfast/holdfast.db"


def _recorded(root: Path) -> Path:
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")}
    environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "ready.recording", str(root)], env=environ, cwd=root,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root


def _run_id(root: Path) -> str:
    with sqlite3.connect(root / STORE) as store:
        return str(store.execute("SELECT id FROM runs WHERE workflow = 'answer'").fetchone()[0])


def _largest(root: Path) -> int:
    """The size of the largest payload on record."""

    async def ask() -> int:
        inspection = opener.inspection(root / STORE)
        try:
            return await inspection.ask(
                lambda view: max(
                    row.size
                    for run in view.run_page(RunQuery(), 50).rows
                    for row in view.journal(run.run.id)
                )
            )
        finally:
            inspection.close()

    return asyncio.run(ask())


def _orphan(root: Path) -> None:
    writer = opener.sandbox_writer(root / STORE)
    record = SandboxRecord(
        id="sbx_left", backend="gvisor", isolation="", runtime="python", created_at=datetime.now(UTC),
        timeout=60.0, cpus=1, memory=1, disk=1, pids=1, network=(), source=None, run_id=_run_id(root),
    )  # fmt: skip
    writer.add_sandbox(record)
    writer.close()
    with sqlite3.connect(root / STORE) as store:  # what a clean end puts down, taken back
        store.execute("UPDATE sandboxes SET stopped_at = NULL, stopped_because = NULL")


def _forget_spend(root: Path) -> None:
    with sqlite3.connect(root / STORE) as store:
        assert store.execute("UPDATE spend SET tokens = 1 WHERE scope LIKE 'run:%'").rowcount


def _old_backup(root: Path) -> None:
    backup = root / "backups" / "old.db"
    backup.parent.mkdir(exist_ok=True)
    backup.touch()
    os.utime(backup, (0, 0))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("stores")
    healthy = _recorded(make(root / "healthy", []))
    (healthy / "backups").mkdir()
    (healthy / "backups" / "today.db").touch()
    projects = {"healthy": healthy}
    for point in ("HF05", "HF12", "HF24", "HF25", "HF26", "HF28"):
        projects[point] = Path(shutil.copytree(healthy, root / point))
    toml = projects["HF05"] / "holdfast.toml"
    toml.write_text(
        toml.read_text().replace(
            "step_timeout = 600", f"step_timeout = 600\nmax_payload = {_largest(healthy) + 1}"
        )
    )
    # The run that waits is bob's, the one that has ended is ada's.
    for point, customer in {"HF25": "bob", "HF26": "ada"}.items():
        asked = f'    if ticket.customer == "{customer}":\n        await tell_somebody("new")\n'
        edit(projects[point], [("desk.py", "    length = await", f"{asked}    length = await")])
    _orphan(projects["HF12"])
    _forget_spend(projects["HF24"])
    _old_backup(projects["HF28"])

    (projects["HF28"] / "backups" / "today.db").unlink()
    projects["HF23"] = _recorded(make(root / "HF23", SECRET))
    return examine_all(projects, "R")


def test_the_records_of_a_healthy_project_fail_in_no_point(found: dict[str, list[Any]]) -> None:
    assert failing(found["healthy"]) == set()
    proven = {each["point"] for each in found["healthy"] if each["outcome"] == "pass"}
    assert {
        "HF02",
        "HF05",
        "HF06",
        "HF07",
        "HF09",
        "HF20",
        "HF21",
        "HF23",
        "HF24",
        "HF25",
        "HF26",
        "HF28",
    } <= proven


@pytest.mark.parametrize("point", ["HF05", "HF12", "HF23", "HF24", "HF25", "HF26", "HF28"])
def test_a_store_broken_in_one_point_fails_in_that_one_alone(
    point: str, found: dict[str, list[Any]]
) -> None:
    assert failing(found[point]) == {point}, found[point]


def test_the_evidence_is_a_run_that_can_be_looked_up(found: dict[str, list[Any]]) -> None:
    wrong = [each for each in found["HF23"] if each["outcome"] == "fail"]
    assert all(each["evidence"].startswith("run_") for each in wrong)


def test_without_a_store_nothing_was_exercised(tmp_path: Path) -> None:
    answers = examine_all({"new": make(tmp_path / "new", [])}, "R")["new"]
    assert {each["outcome"] for each in answers} == {"not exercised"}
