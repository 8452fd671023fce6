"""Two programs for one task, compared on calls that neither has seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.code.test_workflow import GOOD, TESTS, Model, evaluated
from holdfast import open_engine
from holdfast.agents.code import cross_check, toolchain
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.records import CrossCheck
from holdfast.gateway import ScriptedModel
from holdfast.sandbox import Sandbox

MEDIAN = "def median(items):\n    s = sorted(items)\n    return s[len(s) // 2]\n"
OTHER = (
    "def median(items):\n    s = sorted(items)\n    m = len(s) // 2\n"
    "    return s[m] if len(s) % 2 else (s[m - 1] + s[m]) / 2\n"
)
TESTED = "from solution import median\n\n\ndef test_median():\n    assert median([3, 1, 2]) == 2\n"


async def compared(code: str, other: str, tests: str, language: str = "python") -> CrossCheck:
    spoken = LANGUAGES[language]
    source = await toolchain.ready(spoken, ())
    async with await Sandbox.create(runtime=spoken.runtime, timeout=300, source=source) as made:
        return await cross_check.compared(made, spoken, code, other, tests, "a/b")


async def test_programs_that_differ_where_no_test_looks_are_told_by_the_call() -> None:
    found = await compared(MEDIAN, OTHER, TESTED)
    assert found.problem is None and found.compared > 10
    first = found.disagreements[0]
    assert first.call.startswith("median[[[") and first.program.startswith("returns")
    same = await compared(OTHER, OTHER.replace("s[m]", "s[ m ]"), TESTED)
    assert same.compared > 10 and not same.disagreements


async def test_programs_of_node_are_compared_too() -> None:
    code = "export function clip(text, most) {\n  return text.slice(0, most);\n}\n"
    other = code.replace("text.slice(0, most)", "most < 0 ? '' : text.slice(0, most)")
    tests = (
        'import test from "node:test";\nimport assert from "node:assert/strict";\n'
        'import { clip } from "./solution.js";\n'
        'test("clips", () => { assert.equal(clip("abc", 0), ""); });\n'
    )
    found = await compared(code, other, tests, "javascript")
    assert found.problem is None and found.compared > 4
    assert any("-1" in each.call for each in found.disagreements)


async def test_a_program_without_the_function_differs_and_one_that_hangs_is_passed_over() -> None:
    found = await compared(MEDIAN, "def mean(items):\n    return 1\n", TESTED)
    assert found.disagreements[0].other == "missing median"
    hangs = "def median(items):\n    while len(items) != 3:\n        pass\n    return 2\n"
    again = await compared(MEDIAN, hangs, TESTED)
    assert again.problem is None and 0 < again.compared < found.compared


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.chdir(tmp_path)
    async with open_engine(tmp_path / "store.db"):
        yield


@pytest.mark.usefixtures("engine")
async def test_another_model_is_asked_for_the_program_and_decides_nothing() -> None:
    asked: list[str] = []

    def other(request: object) -> str:
        asked.append(str(request))
        return "```python\ndef double(n):\n    return n * n\n```"

    with ScriptedModel("other", other):
        found = await evaluated(Model([GOOD], [TESTS]), cross_check="scripted/other")
    assert found.passed and len(asked) == 1 and "assert" not in asked[0]
    assert found.cross_check is not None and found.cross_check.disagreements
    assert "n * n" in found.cross_check.code
