"""The agent repairs repos that look like real ones, with a model that plays a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.repo import repos
from agents.repo.conftest import Repairing, edit, finish
from agents.repo.repos import git, make
from holdfast.sandbox import default_host

LOOK = [("list_files", {"recursive": True}), ("search", {"pattern": "def |function "})]
REPAIRS: dict[str, tuple[dict[str, str], list[Any], str]] = {
    "pytest": (repos.SLUGS, [*LOOK, edit(repos.SLUGS_FIX), finish()], "4 passed"),
    "unittest": (
        repos.LEDGER,
        [
            ("read_file", {"path": "ledger/money.py"}),
            edit(repos.LEDGER_SPLIT),
            ("run", {"command": "python -m unittest -q"}),
            edit(repos.LEDGER_ADD),
            finish(),
        ],
        "3 passed",
    ),
    "make": (repos.PLANETS, [edit(repos.PLANETS_FIX), finish()], "make test: exit code 0"),
    "npm": (repos.CART, [*LOOK, edit(repos.CART_FIX), finish()], "2 passed"),
    "node": (
        repos.DURATIONS,
        [
            ("write_file", {"path": "src/durations.mjs", "content": repos.DURATIONS_FIX}),
            ("run", {"command": "node --test"}),
            finish(),
        ],
        "3 passed",
    ),
}


@pytest.mark.parametrize("kind", REPAIRS)
async def test_a_repo_with_failing_tests_is_repaired(
    kind: str, repair: Repairing, tmp_path: Path
) -> None:
    files, script, summary = REPAIRS[kind]
    repo = make(tmp_path / kind, files)
    before = {path: path.read_bytes() for path in repo.rglob("*") if path.is_file()}

    result = await repair(repo, script)

    assert result.before is not None and not result.before.ok
    assert result.passed, result.verdict
    assert result.verdict.summary == summary
    assert result.summary == "Done."
    assert result.verdict.changed_tests == ()
    assert {path: path.read_bytes() for path in repo.rglob("*") if path.is_file()} == before
    patch = tmp_path / "it.patch"
    patch.write_bytes(result.patch.raw)
    git(repo, "apply", "--check", str(patch))


async def test_the_strongest_backends_will_do_as_well(
    repair: Repairing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await default_host().probe("gvisor")
    if not found.probe.works:
        pytest.skip(f"gvisor does not work here: {found.probe.reason}")
    monkeypatch.setenv("HOLDFAST_REPO_BACKEND", "gvisor")
    repo = make(tmp_path / "slugs", repos.SLUGS)
    result = await repair(repo, REPAIRS["pytest"][1])
    assert result.passed and result.base.backend == "gvisor"
