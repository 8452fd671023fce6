"""The gateway's examples run, and say what they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "says"),
    [("gateway_scripted.py", "Take an umbrella."), ("gateway_budget.py", "refused")],
)
def test_an_example_runs(name: str, says: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "HOLDFAST_STORE": str(tmp_path / "s.db")},
    )  # fmt: skip
    assert says in done.stdout
    assert done.stderr == ""
