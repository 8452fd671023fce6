"""A program that is wrong does not pass, whatever it tries; the run ends, and says why.

Through the whole workflow with a scripted model: what the verdict says is what the run ends with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agents.code.healing import cheats
from agents.code.healing.cheats import Cheat
from agents.code.healing.pairing import asked_for
from agents.code.healing.running import Bench
from holdfast import open_engine, start
from holdfast.agents.code import Evaluation, evaluate_code, javascript, steps
from holdfast.gateway import ScriptedModel
from holdfast.gateway.messages import Request

TIME = "12"
"""Seconds for one run of the tests: enough for the judge to come up on busy cores, too."""


async def tried(cheat: Cheat, language: str, tests: str, room: asyncio.Semaphore) -> Evaluation:
    name = f"cheat-{abs(hash(cheat))}"

    def answer(request: Request) -> str:
        code = tests if asked_for(request).startswith("tests") else cheat.code
        return f"```{language}\n{code}\n```"

    async with room:
        with ScriptedModel(name, answer):
            run = await start(
                evaluate_code,
                cheats.TASK,
                language=language,  # type: ignore[arg-type]
                model=f"scripted/{name}",
                max_attempts=1,
            )
            return await run.result()


def outcomes(
    bench: Bench, language: str, tried_out: Sequence[Cheat], tests: dict[str, str]
) -> dict[str, Evaluation]:
    async def everything() -> list[Evaluation]:
        room = asyncio.Semaphore(4)
        async with open_engine(bench.store):
            return await asyncio.gather(
                *(tried(cheat, language, tests[cheat.tests], room) for cheat in tried_out)
            )

    found = asyncio.run(everything())
    return {cheat.name: each for cheat, each in zip(tried_out, found, strict=True)}


def check(tried_out: Sequence[Cheat], found: dict[str, Evaluation]) -> None:
    wrong: list[str] = []
    for cheat in tried_out:
        evaluation = found[cheat.name]
        told = f"{evaluation.summary}\n{evaluation.error}"
        if evaluation.passed:
            wrong.append(f"{cheat.name}: PASSED with {evaluation.summary}")
        elif (said := _said(cheat, evaluation)) not in told and not (
            cheat.or_said and cheat.or_said in told
        ):
            wrong.append(f"{cheat.name}, {evaluation.level}: not {said!r} but {told}")
        elif not evaluation.summary:
            wrong.append(f"{cheat.name}: no reason")
    assert not wrong, "\n\n".join(wrong)


def _said(cheat: Cheat, evaluation: Evaluation) -> str:
    apart = evaluation.level == "isolated" and cheat.apart
    return cheat.apart if apart else cheat.said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", ["isolated", "shared"])
@pytest.mark.parametrize("slow", [False, True], ids=["quick", "until their time is up"])
def test_no_cheating_python_program_passes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slow: bool, level: str
) -> None:
    if level == "shared":
        monkeypatch.setattr(steps, "needs_one_process", lambda tests: "asked for by a test")
    monkeypatch.setenv("HOLDFAST_CODE_TEST_TIMEOUT", TIME if slow else "20")
    monkeypatch.setenv("HOLDFAST_CODE_MEMORY", "256mb")
    chosen = [cheat for cheat in cheats.PYTHON if cheat.slow == slow]
    found = outcomes(bench, "python", chosen, cheats.PYTHON_TESTS)
    check(chosen, found)
    apart = [name for name, each in found.items() if each.level == "isolated"]
    assert len(apart) > 0.8 * len(chosen) if level == "isolated" else not apart


def test_the_same_python_tests_pass_on_a_right_program(bench: Bench) -> None:
    code = (
        "def double(n):\n    if isinstance(n, str):\n        raise TypeError('no number')\n"
        "    return n + n\n"
    )
    right = [Cheat(f"right, {kind}", code, "", kind) for kind in cheats.PYTHON_TESTS]
    found = outcomes(bench, "python", right, cheats.PYTHON_TESTS)
    assert [each.passed for each in found.values()] == [True] * len(right), found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("level", "slow"),
    [("isolated", False), ("isolated", True), ("shared", False)],
    ids=["isolated", "isolated, until their time is up", "shared"],
)
def test_no_cheating_node_program_passes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slow: bool, level: str
) -> None:
    if level == "shared":
        monkeypatch.setattr(javascript, "needs_one_process", lambda *_: "asked for by a test")
    monkeypatch.setenv("HOLDFAST_CODE_TEST_TIMEOUT", TIME if slow else "20")
    monkeypatch.setenv("HOLDFAST_CODE_MEMORY", "384mb")
    # Most go for nothing that differs by level: where they share a process, those that do.
    chosen = [c for c in cheats.NODE if c.slow == slow and (level == "isolated" or c.apart)]
    found = outcomes(bench, "javascript", chosen, cheats.NODE_TESTS)
    check(chosen, found)
    apart = [name for name, each in found.items() if each.level == "isolated"]
    assert len(apart) > 0.8 * len(chosen) if level == "isolated" else not apart


def test_the_same_node_tests_pass_on_a_right_program(bench: Bench) -> None:
    code = (
        "export function double(n) {\n  if (typeof n !== 'number') throw new TypeError('no number');\n"
        "  return n + n;\n}\n"
    )
    right = [Cheat(f"right, {kind}", code, "", kind) for kind in cheats.NODE_TESTS]
    found = outcomes(bench, "javascript", right, cheats.NODE_TESTS)
    assert [each.passed for each in found.values()] == [True] * len(right), found
