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
from decimal import Decimal

from holdfast.agents.repo import steps
from holdfast.agents.repo.attempt import work
from holdfast.agents.repo.records import Job, Repair, Try, Verdict
from holdfast.agents.repo.sources import branch_name, without_password
from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError
from holdfast.runtime.context import execution, now, set_attributes
from holdfast.runtime.definitions import workflow

MOST_PARALLEL = 8
MOST_TASK = 100_000
_SPARE = 600.0
"""Beyond the time limit, for the last verdicts."""


@workflow
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


@workflow
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
