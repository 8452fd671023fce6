"""The loop of the code agent: what it asks, what it keeps, and when it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from holdfast import RunFailed, open_engine, start
from holdfast.agents.code import Evaluation, evaluate_code, isolated, steps, verdict
from holdfast.gateway import Gateway, GatewayConfig, Say, ScriptedModel, default_gateway
from holdfast.gateway.calls import use_gateway
from holdfast.gateway.config import ModelPrice
from holdfast.gateway.messages import Request
from holdfast.gateway.scripted import Answer

GOOD = "```python\ndef double(n):\n    return 2 * n\n```"
BAD = "```python\ndef double(n):\n    return 3 * n\n```"
TESTS = (
    "```python\nfrom solution import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    "\n\ndef test_nothing():\n    assert double(0) == 0\n```"
)
WRONG_TESTS = TESTS.replace("double(2) == 4", "double(2) == 5")


@pytest.fixture(autouse=True)
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.chdir(tmp_path)
    async with open_engine(tmp_path / "store.db"):
        yield


class Model:
    """Answers from two lists: programs, and tests."""

    def __init__(self, codes: list[Answer], tests: list[Answer]) -> None:
        self._codes, self._tests = iter(codes), iter(tests)
        self.asked: list[tuple[str, str]] = []
        self.model = ScriptedModel("writer", self._answer)

    def _answer(self, request: Request) -> Answer:
        system, prompt = (message.text for message in request.messages)
        kind = "tests" if "You write tests" in system else "code"
        self.asked.append((kind, prompt))
        return next(self._tests if kind == "tests" else self._codes)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.asked]


async def evaluated(model: Model, **options: object) -> Evaluation:
    with model.model:
        run = await start(evaluate_code, "Write double(n)", model="scripted/writer", **options)  # type: ignore[arg-type]
        return await run.result()


async def test_a_right_program_takes_two_calls() -> None:
    model = Model([GOOD], [TESTS])
    found = await evaluated(model)
    assert found.passed and found.attempts == 1
    assert found.summary == "2 passed"
    assert "return 2 * n" in found.code and "assert double(2) == 4" in found.tests
    assert model.kinds == ["code", "tests"]


async def test_a_failure_goes_back_to_the_model_and_the_tests_are_kept() -> None:
    model = Model([BAD, f"WRONG: code. It trebled.\n{GOOD}"], [TESTS])
    found = await evaluated(model)
    assert found.passed and found.attempts == 2
    assert model.kinds == ["code", "tests", "code"]
    told = model.asked[2][1]
    assert "assert double(2) == 4" in told and "assert 6 == 4" in told
    assert "return 3 * n" in told and "Write double(n)" in told


async def test_a_model_that_never_fixes_it_stops_at_the_cap() -> None:
    model = Model([BAD] * 9, [TESTS])
    found = await evaluated(model, max_attempts=4)
    assert not found.passed and found.attempts == 4
    assert found.error is not None and "assert 6 == 4" in found.error
    assert len(model.asked) == 5


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "the reply was empty"),
        ("I would rather talk about the weather.", "there was no code in the reply"),
        (Say("```python\ndef dou", finish="length"), "the reply was cut off after"),
    ],
)
async def test_a_reply_without_a_program_is_a_failed_attempt_with_a_reason(
    reply: Answer, reason: str
) -> None:
    model = Model([reply, GOOD], [TESTS])
    found = await evaluated(model)
    assert found.passed and found.attempts == 2
    assert reason in model.asked[1][1]
    never = await evaluated(Model([reply] * 3, []))
    assert not never.passed
    assert reason in (never.error or "")


async def test_tests_that_are_broken_are_written_again_and_the_program_is_kept() -> None:
    model = Model([GOOD], ["```python\ndef test_x(:\n```", TESTS])
    found = await evaluated(model)
    assert found.passed and found.attempts == 2
    assert model.kinds == ["code", "tests", "tests"]
    assert "SyntaxError" in model.asked[2][1]


async def test_tests_that_bring_their_own_program_are_not_taken() -> None:
    own = TESTS.replace("from solution import double", "def double(n):\n    return 2 * n")
    model = Model([BAD, GOOD], [own, TESTS])
    found = await evaluated(model)
    assert found.passed
    assert "define double themselves" in model.asked[2][1]


async def test_tests_that_forget_to_import_the_program_get_the_import() -> None:
    model = Model([GOOD], [TESTS.replace("from solution import double\n", "")])
    found = await evaluated(model)
    assert found.passed
    assert found.tests.startswith("from solution import *\n")


async def test_a_wrong_test_is_corrected_by_somebody_who_does_not_see_the_program() -> None:
    model = Model([GOOD, "WRONG: tests. Twice two is four, not five."], [WRONG_TESTS, TESTS])
    found = await evaluated(model)
    assert found.passed and found.attempts == 2
    assert found.corrected_tests == ("test_double",)
    assert model.kinds == ["code", "tests", "code", "tests"]
    asked = model.asked[3][1]
    assert "Twice two is four, not five." in asked
    assert "return 2 * n" not in asked


async def test_tests_can_be_disputed_once() -> None:
    blame = "WRONG: tests. They are too strict."
    model = Model([BAD, blame, blame, GOOD], [TESTS, TESTS])
    found = await evaluated(model, max_attempts=4)
    assert found.passed and found.attempts == 4
    assert model.kinds == ["code", "tests", "code", "tests", "code", "code"]
    assert "the tests stand" in model.asked[4][1]


async def test_tests_are_not_weakened_to_pass() -> None:
    weak = TESTS.replace("assert double(2) == 4", "pass")
    model = Model([BAD, "WRONG: tests. Too strict.", BAD], [TESTS, weak])
    found = await evaluated(model)
    assert not found.passed
    assert "assert double(2) == 4" in found.tests
    assert found.corrected_tests == ()


async def test_a_budget_ends_a_run_before_it_is_passed(tmp_path: Path) -> None:
    config = GatewayConfig(prices={"scripted/writer": ModelPrice(Decimal(1000), Decimal(1000))})
    gateway = Gateway(config)
    use_gateway(gateway)
    try:
        model = Model([BAD] * 9, [TESTS])
        found = await evaluated(model, max_attempts=9, budget=Decimal("11"))
        [call, *_] = await gateway.ledger.calls()
        spend = await gateway.ledger.spend(f"run:{call.start.run_id}")
    finally:
        use_gateway(None)
        await gateway.close()
    assert not found.passed
    assert "budget" in found.summary
    assert 0 < spend.usd <= 11_000_000_000
    assert 1 <= len(model.asked) < 9


async def test_a_model_that_declines_ends_the_run_with_its_words() -> None:
    with pytest.raises(RunFailed, match=r"declined the task: Not that one\."):
        await evaluated(Model([Say(refusal="Not that one.")], []))


async def test_a_model_that_can_not_be_had_fails_the_run_at_once() -> None:
    run = await start(evaluate_code, "Write double(n)", model="scripted/nobody")
    with pytest.raises(RunFailed, match="no scripted model 'nobody'"):
        await run.result()
    assert [(step.name, step.attempts) for step in await run.steps()] == [
        ("prepare", 1), ("generate_code", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": "  "}, "the task is empty"),
        ({"prompt": "x" * 100_001}, "100,001 characters"),
        ({"prompt": "x", "max_attempts": 0}, "between 1 and 20"),
        ({"prompt": "x", "packages": ("--index-url=x",)}, "is no package of the registry"),
    ],
)
async def test_what_makes_no_sense_is_refused(options: dict[str, object], said: str) -> None:
    run = await start(evaluate_code, **options)  # type: ignore[arg-type]
    with pytest.raises(RunFailed, match=said):
        await run.result()


async def test_each_model_call_is_recorded_against_its_step() -> None:
    model = Model([GOOD], [TESTS])
    with model.model:
        run = await start(evaluate_code, "Write double(n)", model="scripted/writer")
        await run.result()
    calls = await default_gateway().ledger.calls(run_id=run.id)
    assert sorted(call.start.step or "" for call in calls) == ["generate_code", "generate_tests"]
    record = await run.record()
    assert record.attributes == {
        "task": "Write double(n)", "language": "python", "attempt": 1, "passed": True,
        "level": "isolated",
    }  # fmt: skip


async def test_a_failure_of_the_runner_costs_no_attempt_and_is_not_told_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = verdict.inside
    failing = [True]

    def broken_once(name: str) -> str:
        broken = failing and name == "run_python.py" and failing.pop()
        return "raise LookupError('a mistake of ours')" if broken else real(name)

    monkeypatch.setattr(verdict, "inside", broken_once)
    monkeypatch.setattr(steps, "needs_one_process", lambda tests: "asked for by a test")
    model = Model([GOOD], [TESTS])
    evaluation = await evaluated(model)
    assert evaluation.passed and evaluation.attempts == 1
    assert model.kinds == ["code", "tests"]
    assert not failing


async def test_a_runner_that_always_fails_ends_the_run_and_says_whose_fault_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdict, "inside", lambda name: "raise LookupError('a mistake of ours')")
    monkeypatch.setattr(steps, "needs_one_process", lambda tests: "asked for by a test")
    model = Model([GOOD], [TESTS])
    with pytest.raises(RunFailed, match="the test runner failed before it came to a verdict"):
        await evaluated(model)
    assert model.kinds == ["code", "tests"]


@pytest.mark.parametrize("side", ["run_isolated.py", "bridge_program.py"])
async def test_a_fault_of_the_bridge_costs_no_attempt_but_the_level(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    real = isolated.inside

    def broken(name: str) -> str:
        return "raise LookupError('a mistake of ours')" if name == side else real(name)

    monkeypatch.setattr(isolated, "inside", broken)
    model = Model([GOOD], [TESTS])
    evaluation = await evaluated(model)
    assert evaluation.passed and evaluation.attempts == 1
    assert evaluation.level == "shared" and evaluation.why_shared
    assert model.kinds == ["code", "tests"]


class TestTheDemoModel:
    async def test_it_knows_the_tasks_of_the_readme(self) -> None:
        easy = await start(evaluate_code, "Write is_palindrome", model="scripted/demo")
        hard = await start(evaluate_code, "Write longest_common_subsequence", model="scripted/demo")
        assert (await easy.result()).attempts == 1
        healed = await hard.result()
        assert healed.passed and healed.attempts == 2

    @pytest.mark.parametrize("task", ["merge_intervals", "to_roman"])
    async def test_it_knows_a_few_more(self, task: str) -> None:
        run = await start(evaluate_code, f"Write {task}", model="scripted/demo")
        assert (await run.result()).passed

    async def test_for_others_it_says_that_a_real_model_is_needed(self) -> None:
        run = await start(evaluate_code, "Write a compiler for COBOL", model="scripted/demo")
        with pytest.raises(RunFailed, match="for others a real model is needed"):
            await run.result()
