"""One try at a task: rounds of an agent's work, each judged, until it passes or a bound is met.

Runs in a workflow body; everything it does is a step or follows from steps.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast.agents.repo import prompts, steps
from holdfast.agents.repo.records import Job, Try, Verdict
from holdfast.agents.repo.tools import Bench
from holdfast.errors import ProviderError
from holdfast.gateway.messages import Message, user
from holdfast.loop import Agent, AgentResult, has_called
from holdfast.runtime.context import execution, now

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
        words = prompts.task(self._job)
        if number > 1:
            words = prompts.heal(self._job, verdict.problem or verdict.summary)
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
        words = prompts.task(self._job)
        if number > 1:
            words = f"{words}\n\n{prompts.heal(self._job, verdict.problem or verdict.summary)}"
        left = max(self._job.deadline - now().timestamp(), 1.0)
        outcome = await steps.run_agent(
            self._job.base, self._job.plan, self._bench.patches, self._command, words, left, number
        )
        self._bench.take(outcome)
        late = now().timestamp() >= self._job.deadline
        return _Said(outcome.text, _BOUNDS["max_time"] if late else "", final=late)
