"""Tests that passed are tried on wrong programs; those that accept them are extended, once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.code.test_workflow import Model, evaluated
from holdfast import open_engine
from holdfast.agents.code import mutation_score, toolchain
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.records import MutationScore
from holdfast.sandbox import Sandbox

CLAMP = "def clamp(n, low, high):\n    if n < low:\n        return low\n    return min(n, high)\n"
STRONG = (
    "from solution import clamp\n\n\ndef test_clamp():\n"
    "    assert [clamp(n, 0, 9) for n in (-5, 0, 3, 9, 12)] == [0, 0, 3, 9, 9]\n"
)
WEAK = "from solution import clamp\n\n\ndef test_clamp():\n    assert clamp(3, 0, 9) == 3\n"
MORE = (
    "import solution\n\n\ndef test_low():\n    assert solution.clamp(-5, 0, 9) == 0\n"
    "\n\ndef test_high():\n    assert solution.clamp(12, 0, 9) == 9\n"
)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.chdir(tmp_path)
    async with open_engine(tmp_path / "store.db"):
        yield


async def measured(code: str, tests: str, language: str = "python") -> MutationScore:
    spoken = LANGUAGES[language]
    source = await toolchain.ready(spoken, ())
    async with await Sandbox.create(runtime=spoken.runtime, timeout=300, source=source) as made:
        return await mutation_score.measured(made, spoken, code, tests, "quick")


async def test_what_tests_accept_is_told_by_line_and_change() -> None:
    weak = await measured(CLAMP, WEAK)
    strong = await measured(CLAMP, STRONG)
    assert weak.problem is None and strong.problem is None
    assert weak.score is not None and strong.score is not None
    assert weak.score < 0.7 < 0.8 < strong.score  # one mutant is no mistake: `n <= low`
    diffs = {each.diff for each in weak.survivors}
    assert "-        return low\n+        return None" in diffs
    assert "-        return low\n+        return None" not in {e.diff for e in strong.survivors}


async def test_tests_of_node_are_measured_too() -> None:
    code = (
        "export function clamp(n, low, high) {\n  if (n < low) {\n    return low;\n  }\n"
        "  return Math.min(n, high);\n}\n"
    )
    head = (
        'import test from "node:test";\nimport assert from "node:assert/strict";\n'
        'import { clamp } from "./solution.js";\n'
    )
    weak = await measured(
        code, f'{head}test("a", () => {{ assert.equal(clamp(3, 0, 9), 3); }});\n', "javascript"
    )
    assert weak.score is not None and weak.score < 0.75
    assert any("return undefined" in each.diff for each in weak.survivors)


async def test_a_script_is_measured_and_what_hangs_is_refused() -> None:
    code = "def total(n):\n    out = 0\n    while n > 0:\n        out += n\n        n -= 1\n    return out\n"
    found = await measured(code, "from solution import total\nassert total(3) == 6\n")
    assert found.problem is None and found.score is not None and found.score > 0.5
    assert not any("n += 1" in each.diff for each in found.survivors)


async def test_tests_that_do_not_pass_measure_nothing() -> None:
    found = await measured(CLAMP, WEAK.replace("== 3", "== 4"))
    assert found.score is None and found.problem is not None


def fenced(code: str) -> str:
    return f"```python\n{code}```"


@pytest.mark.usefixtures("engine")
async def test_weak_tests_are_extended_by_somebody_who_does_not_see_the_program() -> None:
    model = Model([fenced(CLAMP)], [fenced(WEAK), fenced(MORE)])
    found = await evaluated(model, check_tests="quick")
    assert found.passed and found.attempts == 1
    assert model.kinds == ["code", "tests", "tests"]
    told = model.asked[2][1]
    assert "accept these programs" in told and WEAK.strip() in told
    assert CLAMP.strip() not in told
    assert found.tests.count("def test_") == 3 and WEAK.splitlines()[-1] in found.tests
    assert found.mutation is not None and found.mutation.score is not None
    assert found.mutation.score > 0.7


@pytest.mark.usefixtures("engine")
async def test_a_further_test_that_fails_is_settled_while_there_are_attempts() -> None:
    wrong = CLAMP.replace("min(n, high)", "n")
    model = Model([fenced(wrong), fenced(CLAMP)], [fenced(WEAK), fenced(MORE)])
    found = await evaluated(model, check_tests="quick")
    assert found.passed and found.attempts == 2
    assert model.kinds == ["code", "tests", "tests", "code"]
    assert "assert 12 == 9" in model.asked[3][1]


@pytest.mark.usefixtures("engine")
async def test_a_further_test_that_fails_at_the_end_is_told_as_a_doubt() -> None:
    wrong = CLAMP.replace("min(n, high)", "n")
    found = await evaluated(
        Model([fenced(wrong)], [fenced(WEAK), fenced(MORE)]), check_tests="quick", max_attempts=1
    )
    assert found.passed and found.tests == WEAK
    assert found.doubts is not None and "assert 12 == 9" in found.doubts


@pytest.mark.usefixtures("engine")
async def test_a_run_passes_only_with_the_score_that_was_asked_for() -> None:
    weak = Model([fenced(CLAMP)], [fenced(WEAK), "I have none."])
    found = await evaluated(weak, check_tests="quick", min_score=0.9)
    assert not found.passed
    assert found.error is not None and "not 90%" in found.error
    assert found.mutation is not None and found.mutation.survivors
