"""Retention: what goes, what stays, and the space that is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import FatalError, list_runs, open_engine, start, wait_for_event, workflow
from holdfast.runtime.retention import RetentionRule, RetentionSettings, keep_pruning, prune
from holdfast.store.retention import Hold
from holdfast.testing import Harness

DAY = 86400.0


@workflow(name="kept_job")
async def kept_job(text: str = "") -> str:
    if text == "fail":
        raise FatalError("as asked")
    if text == "wait":
        await wait_for_event("go", timeout="999d")
    return text


async def there() -> list[str]:
    return sorted(run.status for run in (await list_runs(workflow="kept_job", limit=1000)).runs)


async def test_runs_go_by_age_and_status_and_live_ones_stay() -> None:
    rules = RetentionSettings(keep=7 * DAY, keep_failed=30 * DAY)
    async with Harness() as harness:
        for text in ("", "", "fail", "wait"):
            await start(kept_job, text)
        await harness.until_blocked()
        assert (await prune(harness.engine, rules)).total == 0
        await harness.skip("8d")
        await start(kept_job, "")
        await harness.until_blocked()
        counted = await prune(harness.engine, rules, dry_run=True)
        assert counted.deleted == {"kept_job": 2}
        assert len(await there()) == 5
        assert (await prune(harness.engine, rules)).deleted == {"kept_job": 2}
        assert await there() == ["completed", "failed", "waiting"]
        await harness.skip("40d")
        await prune(harness.engine, rules)
        assert await there() == ["waiting"]


async def test_runs_go_by_count_and_a_workflow_has_rules_of_its_own() -> None:
    async with Harness() as harness:
        for number in range(7):
            await start(kept_job, f"{number}")
            await harness.skip("1s")
        rules = RetentionSettings(keep=0.5, workflows={"kept_job": RetentionRule(most=3)})
        assert rules.has_rules
        assert (await prune(harness.engine, rules)).total == 4
        runs = (await list_runs(workflow="kept_job")).runs
        assert len(runs) == 3
        assert not RetentionSettings().has_rules


async def test_a_held_run_stays_until_it_is_released() -> None:
    async with Harness() as harness:
        run = await start(kept_job, "")
        await run.result()
        await harness.engine.store.hold(Hold(run.id, "case 7", "ann", 1.0))
        await harness.skip("1d")
        rules = RetentionSettings(keep=60.0)
        assert (await prune(harness.engine, rules)).total == 0
        await harness.engine.store.release_hold(run.id)
        assert (await prune(harness.engine, rules)).total == 1


async def test_without_rules_nothing_is_looked_at() -> None:
    async with Harness() as harness:
        await keep_pruning(harness.engine)


async def test_what_was_deleted_gives_its_space_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_engine(path) as engine:
        for _ in range(20):
            await (await start(kept_job, "x" * 200_000)).result()
        await engine.store.vacuum()
        before = path.stat().st_size
        done = await prune(engine, RetentionSettings(most=0))
        assert done.total == 20
        freed = await engine.store.vacuum()
        assert freed > 3_000_000
        assert path.stat().st_size <= before - freed + 65536
        assert await (await start(kept_job, "after")).result() == "after"


@pytest.mark.parametrize("wrong", ["most = -1", 'keep = "long"', "kep = 1"])
def test_rules_that_are_no_rules_are_refused(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast import config
    from holdfast.errors import ConfigError

    file = tmp_path / "holdfast.toml"
    file.write_text(f"[retention]\n{wrong}\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    with pytest.raises(ConfigError):
        config.section("retention", RetentionSettings)
