"""Carrying out a batch: so many runs at once, each started by its key.

The key makes a batch resumable: a task that was begun before is gone on with, one that has ended
is not done again. The runs are the store's; a batch that is left in the middle leaves nothing
behind but them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from typing import Any

from holdfast.agents.batch.results import Ending, Result
from holdfast.agents.batch.tasks import BatchTask
from holdfast.errors import NotFound, RunMismatch, RunStuck, UsageError
from holdfast.gateway import default_gateway
from holdfast.ids import new_id
from holdfast.records import Run
from holdfast.records.calls import NANO, Call, SpendLimit
from holdfast.runtime.client import create_run, get_run, list_runs
from holdfast.runtime.engine import Engine

_MOST_CALLS = 100_000
_ENDINGS: dict[str, Ending] = {"failed": "failed", "cancelled": "cancelled", "stuck": "stuck"}


class Batch:
    """Tasks under a name, on an engine that is open."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        tasks: Sequence[BatchTask],
        *,
        concurrency: int = 4,
        retry: bool = False,
        budget: Decimal | None = None,
    ) -> None:
        if concurrency < 1:
            raise UsageError(f"{concurrency} at once would let nothing run")
        self._engine, self._name, self._tasks = engine, name, tasks
        self._turns = asyncio.Semaphore(concurrency)
        self._retry, self._budget = retry, budget
        self.running: dict[int, str] = {}
        """The runs under way now, by line."""

    async def results(self) -> AsyncGenerator[Result]:
        """Carry the tasks out; what came of each, in the order in which they end."""
        if self._budget is not None:
            limit = SpendLimit(self._scope, usd=int(self._budget * NANO))
            await default_gateway().ledger.set_limit(limit)
        working = [asyncio.create_task(self._one(task)) for task in self._tasks]
        try:
            for done in asyncio.as_completed(working):
                yield await done
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    @property
    def _scope(self) -> str:
        return f"batch:{self._name}"

    async def _one(self, task: BatchTask) -> Result:
        async with self._turns:
            run, again = await self._begin(task)
            self.running[task.line] = run.id
            try:
                if not again:
                    run = await self._ended(run.id)
                return await self._result(task, run, again=again)
            finally:
                del self.running[task.line]

    async def _begin(self, task: BatchTask) -> tuple[Run, bool]:
        """The task's run, and whether it had ended already."""
        run_id = new_id("run")
        # Before it can make its first call: it may begin in another process at once.
        await default_gateway().ledger.link(f"run:{run_id}", self._scope)
        workflow = task.workflow.options(
            key=f"batch/{self._name}/{task.key}", attributes={"batch": self._name}
        )
        try:
            created = await create_run(
                self._engine, workflow, task.input, same_input=True, run_id=run_id
            )
        except RunMismatch as error:
            raise RunMismatch(
                f"line {task.line}: its id was used before, for another task",
                hint="give it another id, or the batch another --name",
            ) from error
        run = created.run
        if run.status == "failed" and self._retry:
            await (await get_run(run.id)).retry()
            return run, False
        return run, run.ended

    async def _ended(self, run_id: str) -> Run:
        """The run, once it has ended or needs somebody."""
        async for _ in self._engine.watchers.ends(run_id):
            run = await self._engine.store.get(run_id)
            if run is None:
                raise NotFound(f"there is no run {run_id}")
            if run.ended or run.status == "stuck":
                return run
        raise RunStuck(f"Holdfast was closed while waiting for {run_id}")

    async def _result(self, task: BatchTask, run: Run, *, again: bool) -> Result:
        value = None
        if run.status == "completed":
            last = await self._engine.store.last_event(run.id)
            value = json.loads((last.value if last else None) or b"null")
        facts: dict[str, Any] = value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
        passed = bool(facts.get("passed"))
        ending = _ENDINGS.get(run.status, "passed" if passed else "not passed")
        calls = await self._calls(run.id)
        ends = [call.end for call in calls if call.end is not None]
        costs = [end.cost for end in ends]
        usd = None if None in costs else Decimal(sum(c for c in costs if c is not None)) / NANO
        return Result(
            line=task.line,
            title=task.title,
            run_id=run.id,
            ending=ending,
            summary=_summary(run, facts),
            attempts=_attempts(facts),
            seconds=max((run.finished_at or 0.0) - (run.started_at or 0.0), 0.0),
            tokens=sum(end.input_tokens + end.output_tokens for end in ends),
            usd=usd,
            again=again,
            value=value,
        )

    async def _calls(self, run_id: str) -> list[Call]:
        """The model calls of a run and of its children."""
        ledger = default_gateway().ledger
        children = await list_runs(parent=run_id, limit=1000)
        calls: list[Call] = []
        for each in (run_id, *(child.id for child in children.runs)):
            calls += await ledger.calls(run_id=each, limit=_MOST_CALLS)
        return calls


def _summary(run: Run, facts: dict[str, Any]) -> str:
    if run.status != "completed":
        return run.error or run.status
    verdict: Any = facts.get("verdict")  # the repo agent's; the code agent has it on top
    return str((verdict or facts).get("summary") or "")


def _attempts(facts: dict[str, Any]) -> int:
    tries: list[dict[str, Any]] = facts.get("tries") or []
    return int(facts.get("attempts") or max((t.get("rounds", 0) for t in tries), default=0))
