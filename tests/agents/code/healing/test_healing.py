"""Every pair heals in the fewest possible calls, whatever format its model speaks.

The fake provider speaks the true formats over real HTTP, answers first with the program that is
wrong, and gives the right one only to whoever shows it the line that the failing test printed.
"""

from __future__ import annotations

import pytest

from agents.code.healing.pairing import Pair, error_shown, heals, named, pairs, user_text
from agents.code.healing.running import MODELS, Bench
from agents.code.healing.test_pairs import check, lay_out, node_with_types, run_node, run_python
from holdfast.agents import prompts
from holdfast.gateway.formats import FORMATS
from holdfast.testing.providers import FakeProvider

STEPS = ["generate_code", "generate_tests", "generate_code"]
"""Code, tests, correction: with fewer nobody can heal."""


def times_asked(fake: FakeProvider, pair: Pair) -> int:
    """How many requests about a pair came over the wire."""
    requests = [FORMATS[each.format].decode_request(each.body) for each in fake.received]
    return sum(pair.task in user_text(request) for request in requests)


def check_charges(bench: Bench, pair: Pair, run_id: str, fake: FakeProvider) -> None:
    """Three calls, each charged once, no more at the provider than in the ledger."""
    charges = bench.charges(run_id)
    assert [charge.step for charge in charges] == STEPS, pair.name
    assert {charge.status for charge in charges} == {"completed"}
    assert all(charge.cost and charge.cost == charge.charge for charge in charges)
    assert times_asked(fake, pair) == 3, pair.name


def a_third(number: int, *languages: str) -> list[Pair]:
    return [pair for place, pair in enumerate(pairs(*languages)) if place % 3 == number]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["first third", "second third", "last third"])
@pytest.mark.parametrize("languages", [("python",), ("typescript", "javascript")], ids="/".join)
def test_the_pairs_heal_in_three_calls(
    bench: Bench, languages: tuple[str, ...], number: int
) -> None:
    wanted = a_third(number, *languages)
    format = ["chat", "responses", "anthropic"][number]
    fake = bench.provide(heals, format)
    found = bench.evaluate(wanted, MODELS[format])
    for pair in wanted:
        evaluation = found[pair.name]
        assert evaluation.passed, f"{pair.name}: {evaluation.error}"
        assert evaluation.attempts == 2
        assert evaluation.code == pair.fixed, "not a byte of it was lost in its wrapping"
        assert evaluation.tests == pair.tests
        assert evaluation.corrected_tests == ()
        check_charges(bench, pair, bench.run_of(pair.name), fake)
    assert {received.format for received in fake.received} == {format}
    assert len(fake.received) == 3 * len(wanted)


@pytest.mark.parametrize(
    ("format", "pair"),
    [
        ("chat", named("percentile")),
        ("responses", named("lru_cache")),
        ("anthropic", named("split_csv")),
        ("anthropic", named("ts_emitter")),
    ],
    ids=lambda value: value.name if isinstance(value, Pair) else value,
)
def test_holdfast_run_writes_files_that_are_right(bench: Bench, format: str, pair: Pair) -> None:
    fake = bench.provide(heals, format)
    language = ("--language", pair.language)
    done = bench("run", pair.task, "--model", MODELS[format], *language, "--out", "made")
    assert done.code == 0, f"{done}"
    assert "passed on attempt 2 of 3" in done.out
    assert f"made/{pair.code_file}, made/{pair.test_file}" in done.out
    assert (bench.folder / "made" / pair.code_file).read_text() == pair.fixed
    [(run_id,)] = bench.rows("SELECT id FROM runs")
    check_charges(bench, pair, run_id, fake)
    assert {received.format for received in fake.received} == {format}
    # What was written is run again, by other means than the agent's.
    first = lay_out(pair, pair.first, bench.folder / f"{pair.name}-first")
    fixed = lay_out(pair, "", bench.folder / f"{pair.name}-fixed")
    for file in (bench.folder / "made").iterdir():
        (fixed / file.name).write_text(file.read_text())
    if pair.language == "python":
        run_python([first, fixed])
    elif node := node_with_types():
        run_node([first, fixed], node)
    else:
        pytest.skip("no node that runs TypeScript by itself")
    check((pair,), bench.folder)


def test_the_ledger_holds_what_the_provider_said_was_used(bench: Bench) -> None:
    """Charged is what came over the wire: the sum of the replies' usage, at known prices."""
    pair = named("is_leap")
    bench.provide(heals)
    found = bench.evaluate([pair], MODELS["chat"])
    assert found[pair.name].passed
    run_id = bench.run_of(pair.name)
    charges = bench.charges(run_id)
    assert all(charge.tokens > 100 for charge in charges)
    [(spent,)] = bench.rows("SELECT usd FROM spend WHERE scope = ?", f"run:{run_id}")
    assert spent == sum(charge.cost or 0 for charge in charges)


def test_without_the_error_in_the_prompt_nothing_heals(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake is no stub that gives the right program to whoever asks a second time."""
    to_fix = prompts.to_fix

    def blind(*arguments: object) -> str:
        told = list(arguments)
        told[4] = "Some tests failed."
        return to_fix(*told)  # type: ignore[arg-type]

    monkeypatch.setattr(prompts, "to_fix", blind)
    fake = bench.provide(heals)
    wanted = [named("binary_search"), named("split_csv"), named("lru_cache")]
    found = bench.evaluate(wanted, MODELS["chat"])
    assert not any(evaluation.passed for evaluation in found.values())
    assert len(fake.received) == 4 * len(wanted), "code, tests, and two corrections each"


def test_the_prompt_for_a_correction_shows_the_error_and_not_the_whole_output(
    bench: Bench,
) -> None:
    pair = named("from_roman")
    shown: list[str] = []

    def script(request: object) -> object:
        shown.append(error_shown(request))  # type: ignore[arg-type]
        return heals(request)  # type: ignore[arg-type]

    bench.provide(script)
    assert bench.evaluate([pair], MODELS["chat"])[pair.name].passed
    assert shown[:2] == ["", ""]
    assert pair.error in shown[2]
    assert "test_numerals[IV-4]" in shown[2] and "/workspace" not in shown[2]
    assert len(shown[2]) < 8000
