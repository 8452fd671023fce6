"""The whole agent for a test: a store, a sandbox's state folder, fake providers, the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.code.healing.running import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A folder of the test's own, with nothing of this machine's configuration."""
    monkeypatch.chdir(tmp_path)
    opened = Bench(tmp_path)
    for name, value in opened.variables.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        # What `provide` sets is undone only if monkeypatch has seen the name.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield opened
    opened.end()
