"""A run's own profile: the agents in its steps take their settings from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import start, step, workflow
from holdfast.agents.settings import code_settings, repo_settings
from holdfast.errors import RunFailed
from holdfast.testing import Harness

FILE = """
[code]
model = "a/plain"
[profiles.prod.code]
model = "a/strong"
[profiles.night.repo]
attempts = 7
"""


@step(retries=0)
async def look() -> tuple[str | None, int]:
    return code_settings().model, repo_settings().attempts


@workflow
async def looking() -> tuple[str | None, int]:
    return await look()


async def test_a_step_takes_settings_by_the_profile_its_run_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    found = {}
    async with Harness():
        for profile in (None, "prod", "night"):
            chosen = {} if profile is None else {"profile": profile}
            run = await start(looking.options(attributes=chosen))
            found[profile] = await run.result()
        wrong = await start(looking.options(attributes={"profile": "prd"}))
        with pytest.raises(RunFailed, match="there is no 'prd'"):
            await wrong.result()
    assert found == {None: ("a/plain", 3), "prod": ("a/strong", 3), "night": ("a/plain", 7)}
