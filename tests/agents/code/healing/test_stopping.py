"""A model that never fixes its program is stopped: by the attempts, or by the money."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agents.code.healing.pairing import named, never_heals
from agents.code.healing.running import MODELS, Bench

PAIR = named("split_csv")
RUN = ("run", PAIR.task, "--model", MODELS["anthropic"], "--key", PAIR.name)


@pytest.mark.parametrize("attempts", [1, 3, 5])
def test_attempts_are_the_cap_and_the_end_is_honest(bench: Bench, attempts: int) -> None:
    fake = bench.provide(never_heals)
    done = bench(*RUN, "--attempts", f"{attempts}")
    assert done.code == 1, f"{done}"
    closing = done.out.splitlines()
    many = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    assert closing[0].startswith(f"not passed after {many} ·")
    assert closing[1] == "a doubled quote stands for one", "why, in a line"
    assert "passed on" not in done.out
    assert fake.hits == attempts + 1, "the program each time, the tests once"
    assert len(bench.charges()) == attempts + 1
    assert not (bench.folder / "solution.py").exists(), "what did not pass is not written"


def test_what_did_not_pass_is_written_where_it_was_asked_for(bench: Bench) -> None:
    bench.provide(never_heals)
    done = bench(*RUN, "--attempts", "1", "--out", "made")
    assert done.code == 1, f"{done}"
    assert (bench.folder / "made/solution.py").read_text() == PAIR.first


@pytest.mark.parametrize(("budget", "least"), [("0.05", 2), ("0.03", 1), ("0.0001", 0)])
def test_a_budget_is_never_passed(bench: Bench, budget: str, least: int) -> None:
    bench.variables |= {"HOLDFAST_CODE_MAX_TOKENS": "600"}
    fake = bench.provide(never_heals)
    done = bench(*RUN, "--attempts", "20", "--budget", budget)
    assert done.code == 1, f"{done}"
    assert "the budget does not allow another call" in done.out
    assert "·  tokens" not in done.out
    run_id = bench.run_of(PAIR.name)
    assert bench.spent(run_id) <= Decimal(budget)
    charges = [charge for charge in bench.charges(run_id) if charge.status == "completed"]
    assert least <= len(charges) == fake.hits < 20
    assert sum(charge.charge for charge in charges) == bench.spent(run_id) * 10**9
    [(status,)] = bench.rows("SELECT status FROM runs")
    assert status == "completed", "it came to an end of its own, with what it had"
