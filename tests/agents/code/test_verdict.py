"""The verdict on Python programs: only tests that were run, and say something, count."""

from __future__ import annotations

import pytest

from holdfast.agents.code import verdict
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.records import Verdict
from holdfast.agents.code.verdict import Limits, judge
from holdfast.errors import InternalError
from holdfast.sandbox import Sandbox

PYTHON = LANGUAGES["python"]
LIMITS = Limits(seconds=20, pids=64)
GOOD = "def f(n):\n    return n + 1\n"
TEST = "from solution import f\n\n\ndef test_f():\n    assert f(1) == 2\n"


async def verdict_on(code: str, tests: str, limits: Limits = LIMITS) -> Verdict:
    async with await Sandbox.create(pids=limits.pids) as sandbox:
        return await judge(sandbox, PYTHON, code, tests, limits)


@pytest.mark.parametrize(
    ("tests", "summary"),
    [
        (TEST, "1 passed"),
        ("from solution import f\nassert f(1) == 2\nassert f(2) == 3\n", "2 asserts held"),
        (
            "import pytest\nfrom solution import f\n\n"
            "@pytest.mark.parametrize('n', [1, 2])\ndef test_f(n):\n    assert f(n) == n + 1\n"
            "def test_words():\n    with pytest.raises(TypeError):\n        f('x')\n",
            "3 passed",
        ),
        (
            "import unittest\nfrom solution import f\n\nclass Checks(unittest.TestCase):\n"
            "    def test_f(self):\n        self.assertEqual(f(1), 2)\n",
            "1 passed",
        ),
        (
            "from solution import f\n\nclass TestF:\n    def test_f(self):\n"
            "        if f(1) == 2:\n            assert f(3) == 4\n            return\n"
            "        raise AssertionError\n",
            "1 passed",
        ),
    ],
    ids=["functions", "plain asserts", "pytest's own", "unittest", "a class"],
)
async def test_a_right_program_passes_with(tests: str, summary: str) -> None:
    verdict = await verdict_on(GOOD, tests)
    assert (verdict.passed, verdict.summary, verdict.error) == (True, summary, None)


async def test_a_wrong_program_fails_with_the_line_that_says_why() -> None:
    verdict = await verdict_on("def f(n):\n    return n + 2\n", TEST)
    assert not verdict.passed
    assert verdict.failing == ("test_f",)
    assert verdict.summary == "assert 3 == 2"
    assert verdict.error is not None
    assert "test_solution.py:5: in test_f" in verdict.error
    assert "assert f(1) == 2" in verdict.error


@pytest.mark.parametrize(
    ("code", "tests", "side", "said"),
    [
        ("def f(n)\n    return n\n", TEST, "code", "SyntaxError: expected ':'"),
        ("import nothing_like_it\n", TEST, "code", "No module named 'nothing_like_it'"),
        (GOOD, "def test_f(:\n    pass\n", "tests", "SyntaxError"),
        (GOOD, "from solution import f\nx = y\ndef test_f():\n    assert f(1) == 2\n", "tests",
         "NameError: name 'y' is not defined"),
        (GOOD, "from solution import f\ndef test_f():\n    f(1)\n", "tests", "assert nothing"),
        (GOOD, "from solution import f\ndef test_f():\n    assert True\n", "tests",
         "pass whatever the program does"),
        (GOOD, "import pytest\nfrom solution import f\n@pytest.mark.skip\ndef test_g():\n"
         "    assert f(1) == 2\n", "tests", "every test was skipped"),
        (GOOD, "import os\n\nclass Helper(dict):\n    pass\n", "tests", "the file has no tests"),
    ],
)  # fmt: skip
async def test_whose_fault_it_is_is_said_where_it_is_clear(
    code: str, tests: str, side: str, said: str
) -> None:
    verdict = await verdict_on(code, tests)
    assert not verdict.passed
    assert verdict.side == side
    assert said in verdict.summary


async def test_a_program_that_hangs_is_told_where() -> None:
    verdict = await verdict_on(
        "def f(n):\n    while True:\n        pass\n", TEST, Limits(seconds=15)
    )
    assert verdict.summary == "the tests did not end within 15 s"
    assert verdict.error is not None and 'File "solution.py", line' in verdict.error


async def test_what_a_program_prints_is_kept_from_the_end() -> None:
    code = f"def f(n):\n    print('x' * 100_000)\n    print('the end')\n    return n + 1\n\n{GOOD}"
    verdict = await verdict_on(code.replace(GOOD, ""), TEST)
    assert verdict.passed
    assert len(verdict.output) < 5000 and "the end" in verdict.output


async def test_comparisons_of_ordinary_classes_are_left_alone() -> None:
    code = (
        "from dataclasses import dataclass\n\n@dataclass\nclass P:\n    x: int\n\n"
        "def f(n):\n    return P(n)\n"
    )
    tests = "from solution import P, f\ndef test_f():\n    assert f(1) == P(1)\n"
    assert (await verdict_on(code, tests)).passed


async def test_a_test_that_is_skipped_is_counted_and_keeps_nothing_from_passing() -> None:
    skipped = f"import pytest\n{TEST}\n@pytest.mark.skip\ndef test_g():\n    assert f(1) == 2\n"
    assert (await verdict_on(GOOD, skipped)).summary == "1 passed, 1 skipped"


async def test_a_failure_of_the_runner_is_neither_the_programs_nor_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = verdict.inside

    def broken(name: str) -> str:
        text = real(name)
        return text.replace("found = Tests()", "raise LookupError('a mistake of ours')")

    monkeypatch.setattr(verdict, "inside", broken)
    with pytest.raises(InternalError, match="a mistake of ours") as raised:
        await verdict_on(GOOD, TEST)
    assert "neither of the program nor of its tests" in str(raised.value.hint)
    monkeypatch.setattr(verdict, "inside", lambda name: f"import nothing_like_it\n{real(name)}")
    with pytest.raises(InternalError, match="before it came to a verdict"):
        await verdict_on(GOOD, TEST)


async def test_an_end_of_file_is_called_by_its_name() -> None:
    found = await verdict_on("value = input()\n", TEST)
    assert found.summary.startswith("EOFError")
    found = await verdict_on(GOOD, f"{TEST}\n\ndef test_g():\n    raise EOFError('no more')\n")
    assert found.summary == "EOFError: no more"
