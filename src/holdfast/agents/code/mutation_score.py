"""The mutation score: how many wrong programs the tests refuse.

A green run is worth what its tests would have caught. The program's mutants (`mutants.py`) are run
against its tests in one sandbox, each in a process of its own. That measures the tests, not the
program: the verdict is given before, by `isolated.py` or `verdict.py`, and no score changes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from holdfast.agents.code.isolated import runner_modules
from holdfast.agents.code.languages import Language
from holdfast.agents.code.mutants import Mutant, mutants
from holdfast.agents.code.records import MutationScore, Survivor, TestCheck
from holdfast.agents.code.verdict import inside
from holdfast.sandbox import Sandbox

_PLACE = "/tmp/runner"  # noqa: S108 - the sandbox's own
MOST_MUTANTS: dict[TestCheck, int] = {"off": 0, "quick": 24, "thorough": 200}
SECONDS: dict[TestCheck, float] = {"off": 0, "quick": 20.0, "thorough": 180.0}
"""Until no further mutant is begun. It is the number that bounds the ordinary case: a score that
depends on the machine's pace could not be checked again elsewhere."""
_MOST_SURVIVORS = 20


async def measured(
    sandbox: Sandbox, language: Language, code: str, tests: str, check: TestCheck
) -> MutationScore:
    """Run the tests on mutants of the program, in this sandbox, which is used for nothing else."""
    began = time.monotonic()
    made, there_are = mutants(code, language, MOST_MUTANTS[check])
    if not made:
        return MutationScore(0, 0, there_are, problem="nothing in the program can be changed")
    found = await refusals(
        sandbox, language, [code, *(m.code for m in made)], tests, SECONDS[check]
    )
    took = time.monotonic() - began
    if isinstance(found, str):
        return MutationScore(0, 0, there_are, seconds=took, problem=found)
    pairs = [(each, is_refused) for each, is_refused in zip(made, found, strict=True)]
    accepted = [_survivor(each) for each, is_refused in pairs if is_refused is False]
    tried = sum(is_refused is not None for _, is_refused in pairs)
    return MutationScore(
        tried, tried - len(accepted), there_are, tuple(accepted[:_MOST_SURVIVORS]), took
    )


def _survivor(mutant: Mutant) -> Survivor:
    return Survivor(mutant.line, mutant.diff, mutant.code)


async def refusals(
    sandbox: Sandbox, language: Language, programs: Sequence[str], tests: str, seconds: float
) -> list[bool | None] | str:
    """Of each program but the first, whether the tests refuse it; None if there was no time.

    The first is one that they accept. If they don't, or nothing comes of it, a text that says so.
    """
    given: dict[str, Any] = {
        "programs": programs,
        "at_once": os.cpu_count() or 1,
        "seconds": seconds,
    }
    if language.runtime == "python":
        runner, program = "mutants_python.py", "python"
        files = runner_modules("run_python.py")
        given |= {"tests": tests}
    else:
        runner, program = "mutants_node.mjs", "node"
        files = {language.test_file: tests, language.code_file: programs[0]}
        given |= {"tests": language.test_file, "code": language.code_file}
    place = f"{_PLACE}/check_tests{runner[runner.rindex('.') :]}"
    await sandbox.write_files({**files, place: inside(runner)})
    result = await sandbox.run(
        program, place, stdin=f"{json.dumps(given)}\n", timeout=seconds + 45, max_output="1mb"
    )
    try:
        found: Any = json.loads(result.stdout.rstrip().rpartition("\n")[2])
        if len(found) != len(programs):
            raise ValueError
    except (ValueError, TypeError):
        return f"the mutants could not be run ({result})"
    if found[0] is not False:
        return "the tests do not pass when they are run without a judge"
    return [None if each is None else bool(each) for each in found[1:]]
