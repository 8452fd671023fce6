"""Tests that are run apart from their program: what honest ones see, and dishonest ones get."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from agents.code import dishonest, dishonest_node
from holdfast.agents.code import isolated, toolchain
from holdfast.agents.code.isolated import Both, Inconclusive
from holdfast.agents.code.languages import LANGUAGES, Language
from holdfast.agents.code.records import Verdict
from holdfast.agents.code.verdict import Limits
from holdfast.sandbox import Sandbox

PYTHON = LANGUAGES["python"]
LIMITS = Limits(seconds=60, memory="512mb", pids=64)


async def verdict_on(
    code: str, tests: str, limits: Limits = LIMITS, language: Language = PYTHON
) -> Verdict | Inconclusive:
    source = await toolchain.ready(language, ())

    async def made() -> Sandbox:
        return await Sandbox.create(
            runtime=language.runtime, source=source, pids=limits.pids, memory=limits.memory
        )

    async with await made() as one, await made() as other:
        return await isolated.judge(Both(one, other), language, code, tests, limits)


async def verdicts_on(
    programs: Mapping[str, str], tests: str, language: Language = PYTHON
) -> dict[str, Verdict | Inconclusive]:
    room = asyncio.Semaphore(2)

    async def one(code: str) -> Verdict | Inconclusive:
        async with room:
            return await verdict_on(code, tests, language=language)

    found = await asyncio.gather(*map(one, programs.values()))
    return dict(zip(programs, found, strict=True))


@pytest.mark.timeout(900)
async def test_no_object_of_a_program_passes_for_a_value_however_it_is_asserted() -> None:
    right = await verdict_on("def double(n):\n    return n + n\n", dishonest.ASSERTING)
    assert isinstance(right, Verdict) and right.passed, right
    assert right.level == "isolated"
    found = await verdicts_on(dishonest.OBJECTS, dishonest.ASSERTING)
    wrong = [name for name, each in found.items() if isinstance(each, Verdict) and each.passed]
    assert not wrong
    refused = [each.error or "" for each in found.values() if isinstance(each, Verdict)]
    assert sum("claims to be equal to anything" in error for error in refused) >= 4, found


@pytest.mark.timeout(900)
async def test_no_program_passes_by_going_for_its_tests() -> None:
    right = await verdict_on(dishonest.RIGHT, dishonest.TESTS)
    assert isinstance(right, Verdict) and right.passed, right
    found = await verdicts_on(dishonest.PROGRAMS, dishonest.TESTS)
    wrong = [name for name, each in found.items() if isinstance(each, Verdict) and each.passed]
    assert not wrong
    judged = [each for each in found.values() if isinstance(each, Verdict)]
    assert len(judged) > 0.8 * len(found), found


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "programs"),
    [("javascript", dishonest_node.JAVASCRIPT), ("typescript", dishonest_node.TYPESCRIPT)],
)
async def test_no_program_for_node_passes_apart_from_its_tests(
    name: str, programs: dict[str, str]
) -> None:
    language, tests = LANGUAGES[name], dishonest_node.TESTS
    right = await verdict_on(dishonest_node.RIGHT, tests, language=language)
    assert isinstance(right, Verdict) and right.passed, right
    assert right.level == "isolated"
    found = await verdicts_on(programs, tests, language)
    wrong = [name for name, each in found.items() if isinstance(each, Verdict) and each.passed]
    assert not wrong
    judged = [each for each in found.values() if isinstance(each, Verdict)]
    assert len(judged) >= 0.5 * len(found), found


DIVIDE = (
    "def halve(n):\n    if n < 0:\n        raise ValueError(f'negative: {n}')\n    return 10 / n\n"
)


async def test_what_is_told_is_what_pytest_prints() -> None:
    tests = "from solution import halve\n\n\ndef test_halve():\n    assert halve(0) == 1\n"
    found = await verdict_on(DIVIDE, tests)
    assert isinstance(found, Verdict)
    assert (found.level, found.summary) == ("isolated", "ZeroDivisionError: division by zero")
    assert found.error == (
        "test_halve\n"
        "test_solution.py:5: in test_halve\n"
        "    assert halve(0) == 1\n"
        "           ^^^^^^^^\n"
        "solution.py:4: in halve\n"
        "    return 10 / n\n"
        "           ^^^^^^\n"
        "E   ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("open('note.txt', 'w').close()", "the tests use files: note.txt"),
        ("__import__('os').system('true')", "the tests use os.system"),
        ("__import__('sys').settrace(None)", "the tests use sys.settrace"),
        ("monkeypatch.setattr(__import__('sys'), 'path', [])", "the tests replace sys.path"),
        ("assert Number(5) == 5", "Number, a class of the program, is compared with a value"),
        ("assert Number(5) - 2 == 3", "Number, a class of the program, is reckoned with"),
        (
            "given = tuple([1, 2]); assert Number(given).n is given",
            "the tests ask which object a value is",
        ),
        (
            "assert 'Number' in vars(__import__('solution'))",
            "the tests look at all that a module of the program holds",
        ),
        (
            "assert '__eq__' in Number.__dict__",
            "the tests look at all that a class of the program holds",
        ),
    ],
)
async def test_what_needs_one_process_is_noticed_while_the_tests_run(line: str, why: str) -> None:
    code = (
        "class Number:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __eq__(self, other):\n        return self.n == other\n"
        "    def __sub__(self, other):\n        return self.n - other\n"
    )
    tests = f"from solution import Number\n\n\ndef test_n(monkeypatch):\n    {line}\n    assert Number(1).n == 1\n"
    assert await verdict_on(code, tests) == Inconclusive(why)


async def test_a_program_that_hangs_is_told_where() -> None:
    code = "def f(n):\n    while True:\n        pass\n"
    tests = "from solution import f\n\n\ndef test_f():\n    assert f(1) == 2\n"
    found = await verdict_on(code, tests, Limits(seconds=15))
    assert isinstance(found, Verdict) and found.level == "isolated"
    assert found.summary == "the tests did not end within 15 s"
    assert found.error is not None and 'File "solution.py", line' in found.error
    assert 'File "test_solution.py", line 5' in found.error


async def test_tests_that_a_stub_program_passes_test_nothing() -> None:
    tests = "import solution\n\n\ndef test_f():\n    assert callable(solution.f)\n"
    found = await verdict_on("def f(n):\n    return n\n", tests)
    assert isinstance(found, Verdict)
    assert (found.passed, found.side, found.level) == (False, "tests", "isolated")
    assert found.summary == "the tests pass whatever the program does"


@pytest.mark.parametrize("side", ["run_node.mjs", "node_program.mjs"])
async def test_a_fault_of_node_s_bridge_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    real = isolated.inside
    monkeypatch.setattr(
        isolated, "inside", lambda name: "throw 'ours';" if name == side else real(name)
    )
    found = await verdict_on(
        dishonest_node.RIGHT, dishonest_node.TESTS, language=LANGUAGES["javascript"]
    )
    assert isinstance(found, Inconclusive), found
