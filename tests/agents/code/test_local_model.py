"""The whole loop on a small real model that nobody here wrote: whatever it answers, an honest end."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import open_engine, start
from holdfast.agents.code import evaluate_code
from holdfast.gateway import default_gateway
from holdfast.gateway.local import why_missing


@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
async def test_a_run_on_a_real_model_ends_with_an_honest_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CODE_MAX_TOKENS", "160")
    monkeypatch.setenv("HOLDFAST_CODE_TEST_TIMEOUT", "10s")
    async with open_engine(tmp_path / "store.db"):
        run = await start(
            evaluate_code,
            "Write a function add(a, b) that returns the sum of a and b.",
            model="local/smollm2",
            max_attempts=2,
        )
        found = await run.result()
        calls = await default_gateway().ledger.calls(run_id=run.id)
        verdicts = [step for step in await run.steps() if step.name == "run_tests"]
    assert 1 <= found.attempts <= 2
    assert calls and all(call.end and call.end.output_tokens > 0 for call in calls)
    if found.passed:
        assert verdicts and found.summary.endswith(("passed", "held"))
    else:
        assert found.error
