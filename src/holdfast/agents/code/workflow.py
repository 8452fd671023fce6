"""The self-healing code agent: generate code, generate tests, run them, and round again.

    run = await start(evaluate_code, "Write is_palindrome, ignoring case and punctuation")
    evaluation = await run.result()

A run ends with an `Evaluation`, passed or not; it fails only where nothing more can be tried
(the provider refuses our key, the model refuses the task).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from holdfast.agents import prompts
from holdfast.agents.code import records
from holdfast.agents.code.languages import Language, language_named
from holdfast.agents.code.records import (
    CrossCheck,
    Draft,
    Evaluation,
    LanguageName,
    MutationScore,
    Plan,
    Side,
    Survivor,
    TestCheck,
    Verdict,
)
from holdfast.agents.code.test_strength import corrected, extended
from holdfast.errors import BudgetExceeded, UsageError
from holdfast.runtime.context import set_attributes, step_context
from holdfast.runtime.definitions import step, workflow

MOST_ATTEMPTS = 20
MOST_PROMPT = 100_000


@workflow(queue="sandbox")
async def evaluate_code(
    prompt: str,
    language: LanguageName = "python",
    model: str | None = None,
    test_model: str | None = None,
    max_attempts: int = 3,
    budget: Decimal | None = None,
    packages: tuple[str, ...] = (),
    check_tests: TestCheck | None = None,
    min_score: float | None = None,
    cross_check: str | None = None,
) -> Evaluation:
    """Write a program for the task in plain English, with tests that were run and passed.

    `check_tests`: how closely the tests are looked at once they pass (`[code] check_tests`);
    `min_score`: the share of wrong programs that they must refuse; `cross_check`: a model that
    writes a second program, with which the first is compared.
    """
    check_task(prompt, max_attempts, min_score)
    spoken = language_named(language)
    title = prompt.strip().splitlines()[0][:120]
    set_attributes(task=title, language=spoken.name)
    plan = await prepare(spoken.name, model, test_model, budget, packages, prompt, check_tests)
    task = records.Task(
        prompt, spoken.name, plan.model, plan.test_model, max_attempts, budget, packages
    )
    least = plan.min_score if min_score is None else min_score
    state, attempt = _Healing(task, spoken, plan.check_tests, least), 0
    for attempt in range(1, max_attempts + 1):
        set_attributes(attempt=attempt)
        try:
            passed = await _attempt(state, attempt) and await _holds(state, attempt)
        except BudgetExceeded as error:
            state.problem = f"the budget does not allow another call: {error.message}"
            break
        if passed:
            break
    compared = None
    if cross_check is not None and state.verdict is not None and state.verdict.passed:
        compared = await compare(task, state.code_text, state.tests_text, cross_check)
    evaluation = replace(state.evaluation(attempt), cross_check=compared)
    found: dict[str, str | int | float | bool] = {
        "passed": evaluation.passed,
        "level": evaluation.level,
    }
    if evaluation.mutation is not None and evaluation.mutation.score is not None:
        found["mutation_score"] = round(evaluation.mutation.score, 3)
    if compared is not None and compared.problem is None:
        found["disagreements"] = len(compared.disagreements)
    set_attributes(**found)
    return evaluation


def check_task(prompt: str, max_attempts: int, min_score: float | None = None) -> None:
    """Raise for a task that can't be begun."""
    if not prompt.strip():
        raise UsageError("the task is empty", hint="say what the program should do")
    if len(prompt) > MOST_PROMPT:
        raise UsageError(f"the task has {len(prompt):,} characters: at most {MOST_PROMPT:,}")
    if not 1 <= max_attempts <= MOST_ATTEMPTS:
        raise UsageError(f"{max_attempts} attempts: between 1 and {MOST_ATTEMPTS} are possible")
    if min_score is not None and not 0 <= min_score <= 1:
        raise UsageError(
            f"{min_score} is no score", hint="a share of the wrong programs, 0 to 1: 0.8"
        )


@dataclass
class _Healing:
    """Where a run stands between two steps; rebuilt on replay, never stored."""

    task: records.Task
    language: Language
    check_tests: TestCheck = "off"
    min_score: float | None = None
    code: Draft | None = None
    tests: Draft | None = None
    verdict: Verdict | None = None
    """Of the last time the tests were run."""
    problem: str | None = None
    """Why the last attempt came to no verdict."""
    wanted: Side = "code"
    """What is to be written next."""
    changes: tuple[str, ...] = ()
    """Tests that were corrected."""
    tests_stand: bool = False
    """They were disputed once, and that is how often they may be."""

    mutation: MutationScore | None = None
    extended: bool = False
    """The tests were extended once, and that is how often they are."""
    doubts: str | None = None

    @property
    def code_text(self) -> str:
        return self.code.code if self.code else ""

    @property
    def tests_text(self) -> str:
        return self.tests.code if self.tests else ""

    @property
    def too_weak(self) -> str | None:
        """Why the tests do not refuse enough; None if they do."""
        if self.min_score is None or self.verdict is None or not self.verdict.passed:
            return None
        score = self.mutation.score if self.mutation else None
        if score is None:
            why = self.mutation.problem if self.mutation else "the tests were not checked"
            return f"no mutation score, and {self.min_score:.0%} are asked for: {why}"
        if score >= self.min_score:
            return None
        return f"the tests refuse {score:.0%} of the wrong programs, not {self.min_score:.0%}"

    def no_verdict(self, wanted: Side, problem: str) -> bool:
        self.wanted, self.problem = wanted, problem
        return False

    def evaluation(self, attempts: int) -> Evaluation:
        verdict = self.verdict
        self.problem = self.problem or self.too_weak
        passed = verdict is not None and verdict.passed and self.problem is None
        return Evaluation(
            passed=passed,
            code=self.code_text,
            tests=self.tests_text,
            output=verdict.output if verdict else "",
            attempts=attempts,
            language=self.language.name,
            code_file=self.language.code_file,
            test_file=self.language.test_file,
            summary=self.problem or (verdict.summary if verdict else ""),
            error=None if passed else self.problem or (verdict.error if verdict else None),
            corrected_tests=self.changes,
            model=self.task.model or "",
            test_model=self.task.test_model or "",
            level=verdict.level if verdict else "shared",
            why_shared=verdict.why_shared if verdict else None,
            mutation=self.mutation,
            doubts=self.doubts,
        )


async def _attempt(state: _Healing, attempt: int) -> bool:
    """One round: what is missing or wrong is written, then the tests are run."""
    dispute = ""
    error = state.verdict.error if state.verdict else None
    if state.wanted == "code":
        draft = await generate_code(
            state.task, state.code, state.tests, error, state.problem, attempt, state.tests_stand
        )
        if draft.problem:
            return state.no_verdict("code", draft.problem)
        if draft.disputes is None:
            state.code, state.problem = draft, None
        elif state.tests_stand:
            return state.no_verdict("code", f"the tests stand, but it said: {draft.disputes}")
        else:
            state.wanted, dispute = "tests", draft.disputes
    assert state.code is not None
    if state.tests is None or state.wanted == "tests":
        draft = await generate_tests(
            state.task, state.code, state.tests, error, dispute, state.problem, attempt
        )
        if draft.problem:
            return state.no_verdict("tests", draft.problem)
        state.tests_stand = state.tests_stand or bool(dispute)
        if not _taken(state, draft, "code" if dispute else "tests"):
            return False
    assert state.tests is not None
    state.verdict = await run_tests(state.task, state.code.code, state.tests.code, attempt)
    state.problem = None
    state.wanted = state.verdict.side or "code"
    return state.verdict.passed


ENOUGH = 0.8
"""Tests that refuse so much are left as they are, where they are looked at quickly."""
_SHOWN_SURVIVORS = 5


async def _holds(state: _Healing, attempt: int) -> bool:
    """Look at tests that passed; if they accept wrong programs, have them extended, once.

    False if the program fails a further test, and there is an attempt left to settle it.
    """
    assert state.code is not None and state.tests is not None and state.verdict is not None
    if state.check_tests == "off":
        return True
    state.mutation = await check_tests(
        state.task, state.code.code, state.tests.code, state.check_tests, attempt
    )
    score = state.mutation.score
    enough = 1.0 if state.check_tests == "thorough" else max(state.min_score or 0.0, ENOUGH)
    if score is None or score >= enough or state.extended:
        return True
    state.extended = True
    accepted = state.mutation.survivors[:_SHOWN_SURVIVORS]
    draft = await extend_tests(state.task, state.tests.code, accepted, attempt)
    more = None if draft.problem else extended(state.language, state.tests.code, draft.code)
    if more is None:
        return True
    found = await run_tests(state.task, state.code.code, more, attempt)
    if found.passed:
        state.tests, state.verdict = replace(draft, code=more), found
        state.mutation = await check_tests(
            state.task, state.code.code, more, state.check_tests, attempt
        )
        return True
    if found.side == "tests":
        return True  # they are of no use
    if attempt == state.task.max_attempts:
        state.doubts = f"a further test fails: {found.summary}"
        return True
    state.tests, state.verdict, state.mutation = replace(draft, code=more), found, None
    return False


def _taken(state: _Healing, draft: Draft, otherwise: Side) -> bool:
    """Take the tests; corrected ones unless they check less. If not, go on with `otherwise`."""
    failing = state.verdict.failing if state.verdict else ()
    if state.tests is None or not failing:  # they were of no use at all: there is nothing to keep
        state.tests = draft
        return True
    kept = corrected(state.language, state.tests.code, draft.code, failing)
    if kept is None:
        weaker = "the corrected tests check less than before, so the old ones stand"
        return state.no_verdict(otherwise, weaker)
    state.tests = replace(draft, code=kept)
    state.changes += failing
    return True


# --- the steps: the gateway and the sandbox are loaded by those that need them, so that a run
# --- begins at once


@step(retries=2, timeout="20m")
async def prepare(
    language: LanguageName,
    model: str | None,
    test_model: str | None,
    budget: Decimal | None,
    packages: tuple[str, ...],
    task: str,
    check_tests: TestCheck | None = None,
) -> Plan:
    """Settle the models, set the run's budget, make the sandbox's packages ready."""
    from holdfast.agents.code.steps import settle

    spoken = language_named(language)
    run_id = step_context().run_id
    return await settle(run_id, task, spoken, model, test_model, budget, packages, check_tests)


@step(retries=3, timeout="15m")
async def generate_code(
    task: records.Task,
    previous: Draft | None,
    tests: Draft | None,
    error: str | None,
    problem: str | None,
    attempt: int,
    tests_stand: bool,
) -> Draft:
    """Have the program written, or corrected after its tests failed."""
    from holdfast.agents.code.steps import write

    language = language_named(task.language)
    system = prompts.for_code(language, task.packages)
    if previous is None or tests is None or error is None:
        prompt = prompts.to_write(language, task.prompt, problem)
    else:
        prompt = prompts.to_fix(
            language, task.prompt, previous.code, tests.code, error, problem, tests_stand
        )
    return await write(task.model or "", system, prompt, language, tests=False)


@step(retries=3, timeout="15m")
async def generate_tests(
    task: records.Task,
    code: Draft,
    previous: Draft | None,
    error: str | None,
    dispute: str,
    problem: str | None,
    attempt: int,
) -> Draft:
    """Have the tests written, or corrected where they are wrong."""
    from holdfast.agents.code.steps import write

    language = language_named(task.language)
    system = prompts.for_tests(language, task.packages)
    if previous is None or error is None:
        prompt = prompts.to_test(language, task.prompt, code.code, problem)
    else:
        prompt = prompts.to_fix_tests(language, task.prompt, previous.code, error, dispute, problem)
    draft = await write(task.test_model or "", system, prompt, language, tests=True)
    return draft if draft.problem else _importing(draft, code, language)


def _importing(draft: Draft, code: Draft, language: Language) -> Draft:
    """Tests must import the program they test, and not bring their own."""
    if language.name != "python":
        return draft
    own = language.defines(draft.code) & language.defines(code.code)
    if own:
        names = ", ".join(sorted(own))
        problem = f"the tests define {names} themselves instead of importing it from solution"
        return replace(draft, problem=problem)
    if "solution" not in draft.code:
        return replace(draft, code=f"from solution import *\n\n{draft.code}")
    return draft


@step(retries=2)  # it may wait its turn for long; what it does then has limits of its own
async def run_tests(task: records.Task, code: str, tests: str, attempt: int) -> Verdict:
    """Run the tests on the program in a fresh sandbox."""
    from holdfast.agents.code.steps import try_out

    return await try_out(task, code, tests)


@step(retries=2)
async def check_tests(
    task: records.Task, code: str, tests: str, check: TestCheck, attempt: int
) -> MutationScore:
    """Run the tests on wrong programs: the program with one small mistake each."""
    from holdfast.agents.code.steps import score

    return await score(task, code, tests, check)


@step(retries=3, timeout="15m")
async def extend_tests(
    task: records.Task, tests: str, accepted: tuple[Survivor, ...], attempt: int
) -> Draft:
    """Have tests written that refuse the wrong programs which these accept."""
    from holdfast.agents.code.steps import write_more

    language = language_named(task.language)
    programs = [(each.line, each.code) for each in accepted]
    prompt = prompts.to_extend_tests(language, task.prompt, tests, programs)
    system = prompts.for_tests(language, task.packages)
    return await write_more(task.test_model or "", system, prompt, language)


@step(retries=2, timeout="20m")
async def compare(task: records.Task, code: str, tests: str, model: str) -> CrossCheck:
    """Have a second program written by another model, and compare the two."""
    from holdfast.agents.code.steps import write_and_compare

    system = prompts.for_code(language_named(task.language), task.packages)
    return await write_and_compare(task, code, tests, model, system)
