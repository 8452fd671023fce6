"""The repo agent: a repo and a task in, a patch whose tests were run out.

    run = await start(repair_repo, "./project", "Fix the date parser")
    repair = await run.result()
    print(repair.passed, repair.patch.text)

The user's tree is copied once and never written. Agents work in sandboxes; what they hand in is
judged in fresh ones. A run ends with a `Repair`, passed or not; it fails only where nothing can
be tried (no such repo, no usable model).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal

from holdfast.agents import prompts
from holdfast.agents.repo import steps
from holdfast.agents.repo.checkout import branch_name, without_password
from holdfast.agents.repo.records import Job, Repair, Try, Verdict
from holdfast.agents.repo.tools import Bench
from holdfast.durations import Duration, seconds
from holdfast.errors import ProviderError, UsageError
from holdfast.gateway.messages import Message, user
from holdfast.loop import Agent, AgentResult, has_called
from holdfast.runtime.context import execution, now, set_attributes
from holdfast.runtime.definitions import workflow

MOST_PARALLEL = 8
MOST_TASK = 100_000
_SPARE = 600.0
"""Beyond the time limit, for the last verdicts."""


@workflow(queue="sandbox")
async def repair_repo(
    source: str,
    task: str,
    model: str | None = None,
    test_command: str | None = None,
    setup: tuple[str, ...] = (),
    agent: str | None = None,
    parallel: int = 1,
    attempts: int | None = None,
    max_steps: int | None = None,
    max_time: Duration | None = None,
    budget: Decimal | None = None,
    committed: bool = False,
    keep_tests: bool = False,
) -> Repair:
    """Do a task on a git repo (a folder or an address), and hand back a verified patch."""
    _check(task, parallel)
    begun = now()
    set_attributes(task=task.strip().splitlines()[0][:120], repo=without_password(source))
    limit = None if max_time is None else seconds(max_time)
    plan = await steps.settle(model, budget, attempts, max_steps, limit, agent)
    base = await steps.take_repo(source, plan, committed, test_command, setup)
    try:
        before = await steps.run_tests(base, plan)
        deadline = begun.timestamp() + plan.max_time
        job = Job(task, base, plan, before, deadline, keep_tests, agent)
        tries = (await work(job, 1),) if parallel == 1 else await _several(job, parallel)
        best = min(tries, key=_rank)
        spent = await steps.add_up(tuple(dict.fromkeys([_run_id(), *(t.run_id for t in tries)])))
    finally:
        await steps.let_go(base.snapshot)
    set_attributes(passed=best.verdict.passed)
    return Repair(
        passed=best.verdict.passed,
        patch=best.verdict.patch,
        branch=branch_name(task),
        summary=best.summary,
        verdict=best.verdict,
        base=base,
        before=before,
        tries=tries,
        chosen=best.number,
        spent=spent,
        model=plan.model,
        seconds=(now() - begun).total_seconds(),
    )


@workflow(queue="sandbox")
async def try_repair(job: Job, number: int, parent: str) -> Try:
    """One of several tries at a task, in a sandbox of its own."""
    await steps.join_budget(parent)
    return await work(job, number)


async def _several(job: Job, count: int) -> tuple[Try, ...]:
    """Several tries at once; those that are not done when the time is up are given up."""
    parent = _run_id()
    tasks = [asyncio.create_task(try_repair(job, number, parent)) for number in range(1, count + 1)]
    left = max(job.deadline - now().timestamp(), 0.0) + _SPARE
    await asyncio.wait(tasks, timeout=left)
    for each in tasks:
        each.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return tuple(
        each if isinstance(each, Try) else _failed(parent, number, each)
        for number, each in enumerate(ended, 1)
    )


def _failed(parent: str, number: int, error: BaseException) -> Try:
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Try(parent, number, 0, Verdict(False, told), "", ended=told)


def _rank(each: Try) -> tuple[bool, bool, int, int]:
    """Passed before not; tests left as they were before changed ones; the smallest first."""
    verdict = each.verdict
    weaker = any(test.weaker for test in verdict.changed_tests)
    return (not verdict.passed, weaker, verdict.lines or 1 << 30, each.number)


def _run_id() -> str:
    body = execution()
    assert body is not None
    return body.run_id


def _check(task: str, parallel: int) -> None:
    if not task.strip():
        raise UsageError("the task is empty", hint="say what should be done")
    if len(task) > MOST_TASK:
        raise UsageError(f"the task has {len(task):,} characters: at most {MOST_TASK:,}")
    if not 1 <= parallel <= MOST_PARALLEL:
        raise UsageError(f"{parallel} tries at once: between 1 and {MOST_PARALLEL} are possible")


# --- one try ---


_BOUNDS = {
    "budget": "the budget is used up",
    "max_time": "the time is up",
    "max_steps": "the steps of this round are used up",
    "repeating": "the model made the same calls over and over",
    "length": "a reply was cut off",
    "refusal": "the model declined",
    "content_filter": "the model's answer was withheld",
}
_FINAL = ("budget", "max_time", "refusal", "content_filter")
"""Ends after which another round makes no sense."""


@dataclass(slots=True)
class _Said:
    """What came of one round."""

    summary: str
    ended: str
    final: bool


async def work(job: Job, number: int) -> Try:
    """Let an agent work until its patch passes."""
    bench = Bench(job.base, job.plan)
    agent = _Agent(job, bench) if job.agent is None else _Outsider(job, bench, job.agent)
    rounds, verdict, said = 0, Verdict(False, "nothing was tried"), _Said("", "", final=False)
    judged = None
    try:
        while rounds < job.plan.attempts and not said.final:
            rounds += 1
            said = await agent.round(rounds, verdict)
            if judged != bench.tree:
                verdict = await steps.judge(
                    job.base, job.plan, bench.patches, job.before, job.keep_tests, rounds
                )
                judged = bench.tree
            if verdict.passed:
                break
    finally:
        await steps.close_workspace()
    body = execution()
    assert body is not None
    ended = "" if verdict.passed else said.ended
    return Try(body.run_id, number, rounds, verdict, said.summary, ended)


class _Agent:
    """Our own agent, with its conversation from round to round."""

    def __init__(self, job: Job, bench: Bench) -> None:
        self._job, self._bench = job, bench
        self._messages: tuple[Message, ...] = ()
        plan = job.plan
        self._agent = Agent(
            plan.model,
            plan.prompts.system,
            bench.tools(),
            name="repo",
            max_steps=plan.max_steps,
            max_time=plan.max_time,
            stop_when=(has_called("finish"), lambda _: bench.broken is not None),
            parallel_tools=False,
            max_tokens=plan.max_tokens,
        )

    async def round(self, number: int, verdict: Verdict) -> _Said:
        """Work on the task, or on what was wrong with it, as long as there is time."""
        limit = asyncio.timeout(max(self._job.deadline - now().timestamp(), 0.0))
        try:
            async with limit:
                return await self._round(number, verdict)
        except TimeoutError:
            if not limit.expired():
                raise
            return _Said("", _BOUNDS["max_time"], final=True)
        except ProviderError as error:
            if not self._bench.patches:
                raise  # nothing is lost, and the run may say so
            return _Said("", f"the model could not be asked: {error.message}", final=True)

    async def _round(self, number: int, verdict: Verdict) -> _Said:
        words = prompts.repo_task(self._job)
        if number > 1:
            words = prompts.repo_heal(self._job, verdict.problem or verdict.summary)
        else:
            await self._bench.open()
        self._bench.finished = None
        result = await self._agent.run(messages=[*self._messages, user(words)])
        self._messages = result.messages
        if self._bench.broken is not None:
            raise self._bench.broken
        return _Said(
            self._bench.finished or result.text,
            self._ended(result),
            final=result.finish in _FINAL,
        )

    @staticmethod
    def _ended(result: AgentResult[str]) -> str:
        words = _BOUNDS.get(result.finish, "")
        return f"{words}: {result.error}" if words and result.error else words


class _Outsider:
    """A command-line agent of others; it is told everything anew each round."""

    def __init__(self, job: Job, bench: Bench, command: str) -> None:
        self._job, self._bench, self._command = job, bench, command

    async def round(self, number: int, verdict: Verdict) -> _Said:
        """Run the command on the files as they are."""
        words = prompts.repo_task(self._job)
        if number > 1:
            words = f"{words}\n\n{prompts.repo_heal(self._job, verdict.problem or verdict.summary)}"
        left = max(self._job.deadline - now().timestamp(), 1.0)
        outcome = await steps.run_agent(
            self._job.base, self._job.plan, self._bench.patches, self._command, words, left, number
        )
        self._bench.take(outcome)
        late = now().timestamp() >= self._job.deadline
        return _Said(outcome.text, _BOUNDS["max_time"] if late else "", final=late)
