"""A model that blames the tests can't have them say less; a test that is wrong is corrected once.

The whole workflow with a scripted model that answers in turn.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pytest

from agents.code.healing.pairing import asked_for
from agents.code.healing.running import Bench
from holdfast import open_engine, start
from holdfast.agents.code import Evaluation, evaluate_code
from holdfast.gateway import ScriptedModel
from holdfast.gateway.messages import Request

TASK = "Write half(n), which returns half of the whole number n, rounded down."
BLAME = "WRONG: tests. They are far too strict."
WEAKER = "the corrected tests check less than before, so the old ones stand"


@dataclass(frozen=True)
class Subject:
    """One language: a program that is wrong, the right one, and tests that tell them apart."""

    language: str
    wrong: str
    right: str
    tests: str
    failing: str
    """The test that the wrong program fails, by name."""

    def fenced(self, code: str) -> str:
        return f"```{self.language}\n{code}```"


PYTHON = Subject(
    "python",
    "def half(n):\n    return int(n / 2)\n",
    "def half(n):\n    return n // 2\n",
    """\
import pytest

from solution import half


def test_even():
    assert half(8) == 4


@pytest.mark.parametrize(("n", "expected"), [(-8, -4), (-1, -1), (-7, -4)])
def test_below_zero(n, expected):
    assert half(n) == expected
    assert isinstance(half(n), int)


def test_odd():
    assert half(7) == 3
""",
    "test_below_zero",
)
NODE = Subject(
    "javascript",
    "export function half(n) {\n  return Math.trunc(n / 2);\n}\n",
    "export function half(n) {\n  return Math.floor(n / 2);\n}\n",
    """\
import test from "node:test";
import assert from "node:assert/strict";
import { half } from "./solution.js";

test("even", () => {
  assert.equal(half(8), 4);
});

test("below zero", () => {
  assert.equal(half(-7), -4);
  assert.equal(half(-8), -4);
});

test("odd", () => {
  assert.equal(half(7), 3);
});
""",
    "below zero",
)
WEAK_PYTHON = {
    "emptied": "from solution import half\n",
    "no such test any more": PYTHON.tests.replace("test_below_zero", "test_something"),
    "fewer asserts": PYTHON.tests.replace("    assert half(n) == expected\n", ""),
    "fewer cases": PYTHON.tests.replace(", (-1, -1), (-7, -4)]", "]"),
    "skipped": PYTHON.tests.replace("@pytest", "@pytest.mark.skip\n@pytest"),
    "expected to fail": PYTHON.tests.replace("@pytest", "@pytest.mark.xfail\n@pytest"),
    "left early": PYTHON.tests.replace(
        "    assert half(n) ==", "    return\n    assert half(n) =="
    ),
    "true by itself": PYTHON.tests.replace("half(n) == expected", "half(n) == half(n)"),
    "or true": PYTHON.tests.replace("half(n) == expected", "half(n) == expected or True"),
    "looser": PYTHON.tests.replace("half(n) == expected", "half(n) >= expected"),
    "swallowed": PYTHON.tests.replace(
        "    assert half(n) == expected\n",
        "    try:\n        assert half(n) == expected\n    except AssertionError:\n        pass\n",
    ),
    "no tests but words": "I removed the tests that were too strict, they add no value.\n",
}
WEAK_NODE = {
    "emptied": 'import { half } from "./solution.js";\n',
    "no such test any more": NODE.tests.replace("below zero", "something"),
    "fewer asserts": NODE.tests.replace("  assert.equal(half(-7), -4);\n", ""),
    "skipped": NODE.tests.replace('test("below', 'test.skip("below'),
    "true by itself": NODE.tests.replace("assert.equal(half(-7), -4)", "assert.ok(true)"),
    "looser": NODE.tests.replace("assert.equal(half(-7), -4)", "assert.ok(half(-7) < 0)"),
}


class Model:
    """Answers from lists: programs (and blame), and tests; the last of each for ever."""

    def __init__(self, subject: Subject, codes: list[str], tests: list[str]) -> None:
        self._subject = subject
        self._codes, self._tests = list(codes), list(tests)
        self.kinds: list[str] = []

    def __call__(self, request: Request) -> str:
        kind = asked_for(request)
        self.kinds.append(kind)
        answers = self._tests if kind.startswith("tests") else self._codes
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        plain = answer.startswith(("WRONG", "I "))
        return answer if plain else self._subject.fenced(answer)


def evaluated(bench: Bench, subject: Subject, models: dict[str, Model]) -> dict[str, Evaluation]:
    async def one(name: str, model: Model) -> Evaluation:
        scripted = name.replace(" ", "-")
        with ScriptedModel(scripted, model):
            run = await start(
                evaluate_code,
                TASK,
                language=subject.language,  # type: ignore[arg-type]
                model=f"scripted/{scripted}",
                max_attempts=4,
            )
            return await run.result()

    async def everything() -> list[Evaluation]:
        async with open_engine(bench.store):
            return await asyncio.gather(*(one(name, models[name]) for name in models))

    return dict(zip(models, asyncio.run(everything()), strict=True))


@pytest.mark.parametrize(
    ("subject", "weak"), [(PYTHON, WEAK_PYTHON), (NODE, WEAK_NODE)], ids=["python", "node"]
)
def test_tests_that_check_less_are_refused_and_the_old_ones_stand(
    bench: Bench, subject: Subject, weak: dict[str, str]
) -> None:
    models = {
        name: Model(subject, [subject.wrong, BLAME, subject.wrong], [subject.tests, tests])
        for name, tests in weak.items()
    }
    for name, found in evaluated(bench, subject, models).items():
        assert not found.passed, name
        assert found.tests == subject.tests, name
        assert found.corrected_tests == (), name


def test_it_is_told_why_its_tests_were_not_taken(bench: Bench) -> None:
    told: list[str] = []
    model = Model(PYTHON, [PYTHON.wrong, BLAME, PYTHON.right], [PYTHON.tests, "assert True\n"])

    def script(request: Request) -> str:
        told.append("\n".join(m.text for m in request.messages if m.role == "user"))
        return model(request)

    async def run() -> Evaluation:
        with ScriptedModel("told", script):
            async with open_engine(bench.store):
                started = await start(evaluate_code, TASK, model="scripted/told")
                return await started.result()

    found = asyncio.run(run())
    assert found.passed and found.attempts == 3
    assert model.kinds == ["code", "tests", "fix", "tests fix", "fix"]
    assert WEAKER in told[4] and "the tests stand as they are" in told[4]
    assert "half(n)" in told[3] and "return int(n / 2)" not in told[3], "it never saw the program"


@pytest.mark.parametrize("subject", [PYTHON, NODE], ids=["python", "node"])
def test_blaming_the_tests_again_and_again_leads_nowhere(bench: Bench, subject: Subject) -> None:
    model = Model(subject, [subject.wrong, BLAME], [subject.tests])
    found = evaluated(bench, subject, {"stubborn": model})["stubborn"]
    assert not found.passed and found.attempts == 4
    assert model.kinds.count("tests fix") == 1, "they are looked at once"
    assert found.tests == subject.tests


@pytest.mark.parametrize("subject", [PYTHON, NODE], ids=["python", "node"])
def test_a_wrong_test_is_corrected_and_the_others_stay_to_the_letter(
    bench: Bench, subject: Subject
) -> None:
    """A right program, one wrong expectation; the correction also touches a test that passed."""
    right = {"python": "(-7, -4)", "javascript": "half(-7), -4"}[subject.language]
    mistaken = subject.tests.replace(right, right.replace("-4", "-3"))
    passing = {"python": "half(7) == 3", "javascript": "half(7), 3"}[subject.language]
    meddled = subject.tests.replace(passing, passing.replace("3", "half(7)"))
    model = Model(subject, [subject.right, BLAME], [mistaken, meddled])
    found = evaluated(bench, subject, {"fair": model})["fair"]
    assert found.passed and found.attempts == 2, found.error
    assert found.tests == subject.tests, "the correction alone"
    assert {name.partition("[")[0] for name in found.corrected_tests} == {subject.failing}
    assert model.kinds == ["code", "tests", "fix", "tests fix"]


@pytest.mark.parametrize("subject", [PYTHON, NODE], ids=["python", "node"])
def test_tests_made_to_fit_a_wrong_program_are_at_most_those_it_failed_and_are_named(
    bench: Bench, subject: Subject
) -> None:
    """What can't be told from a correction: the result says which tests were changed."""
    right = {"python": "(-7, -4)", "javascript": "half(-7), -4"}[subject.language]
    odd = {"python": "half(7) == 3", "javascript": "half(7), 3"}[subject.language]
    fitted = subject.tests.replace(right, right.replace("-4", "-3"))
    fitted = fitted.replace(odd, odd.replace("3", "99"))
    model = Model(subject, [subject.wrong, BLAME], [subject.tests, fitted])
    found = evaluated(bench, subject, {"fitted": model})["fitted"]
    names = {name.partition("[")[0] for name in found.corrected_tests}
    assert names == {subject.failing}
    assert odd in found.tests, "a test that it passed is as it was"


def test_a_program_that_skips_its_tests_does_not_get_others(bench: Bench) -> None:
    """Or it could have the tests written anew until they suit it."""
    skipping = "import pytest\n\n\ndef half(n):\n    pytest.skip('not today')\n"
    model = Model(
        PYTHON, [skipping], [PYTHON.tests, "from solution import half\nassert half(2) == 1\n"]
    )
    found = evaluated(bench, PYTHON, {"skipping": model})["skipping"]
    assert not found.passed
    assert model.kinds.count("tests") == 1 and "tests fix" not in model.kinds
    assert "the program ended" in found.summary and "Skipped: not today" in found.summary


@pytest.mark.parametrize("subject", [PYTHON, NODE], ids=["python", "node"])
def test_one_test_that_its_file_skips_is_counted_and_costs_no_attempt(
    bench: Bench, subject: Subject
) -> None:
    """As with pytest and node themselves; what was run has passed."""
    mark = {
        "python": ("@pytest.mark.parametrize", "@pytest.mark.skip\n@pytest.mark.parametrize"),
        "javascript": ('test("below', 'test.skip("below'),
    }[subject.language]
    skipped = subject.tests.replace(*mark)
    model = Model(subject, [subject.right], [skipped, subject.tests])
    found = evaluated(bench, subject, {"skipped": model})["skipped"]
    assert found.passed and found.attempts == 1, found.error
    many = {"python": 3, "javascript": 1}[subject.language]  # each case of a parametrized test
    assert found.summary == f"2 passed, {many} skipped"
    assert found.tests == skipped and found.corrected_tests == ()
    assert model.kinds == ["code", "tests"]


@pytest.mark.parametrize("subject", [PYTHON, NODE], ids=["python", "node"])
def test_tests_that_were_all_skipped_are_taken_up_and_none_may_check_less(
    bench: Bench, subject: Subject
) -> None:
    mark = {
        "python": (r"^(?=@pytest|def test_(even|odd))", "@pytest.mark.skip\n"),
        "javascript": (r"^test\(", "test.skip("),
    }[subject.language]
    looser = {
        "python": ("half(7) == 3", "half(7) >= 3"),
        "javascript": ("assert.equal(half(7), 3)", "assert.ok(half(7) >= 3)"),
    }[subject.language]
    skipped, many = re.subn(*mark, subject.tests, flags=re.MULTILINE)
    assert many == 3
    meddled = subject.tests.replace(*looser)
    assert meddled != subject.tests
    model = Model(subject, [subject.right], [skipped, meddled, subject.tests])
    found = evaluated(bench, subject, {"all-skipped": model})["all-skipped"]
    assert found.passed and found.attempts == 3, found.error
    assert found.tests == subject.tests
    names = {name.partition("[")[0] for name in found.corrected_tests}
    assert len(names) == 3 and subject.failing in names
    assert model.kinds == ["code", "tests", "tests fix", "tests fix"]
