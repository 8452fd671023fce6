"""Batches: many tasks from a file, each a durable run of its own, found again by its key.

    {"prompt": "Write is_palindrome", "language": "python"}
    {"id": "slugs", "repo": "./slugs", "task": "Make the tests pass"}

One JSON object a line, checked before any is begun. A line with `repo` is for the repo agent, any
other for the code agent. The key of a task is its `id`, or what the line says: the same file again
means the same runs, so a batch is resumable: a task in progress continues, one that has ended is
not repeated. A batch that is left in the middle leaves nothing behind but its runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast

from holdfast.agents.code import evaluate_code
from holdfast.agents.code.languages import language_named
from holdfast.agents.repo import repair_repo
from holdfast.agents.repo.checkout import find_source
from holdfast.agents.settings import code_settings
from holdfast.errors import CodecError, HoldfastError, NotFound, RunMismatch, RunStuck, UsageError
from holdfast.gateway import default_gateway
from holdfast.ids import new_id
from holdfast.near_names import did_you_mean
from holdfast.records import Run
from holdfast.records.calls import NANO, SpendLimit
from holdfast.runtime.client import create_run, get_run, list_runs
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.engine import Engine

# --- the tasks of a file ---


_NAMES = {"repo": "source", "attempts": "max_attempts"}
"""What a line calls an argument, where the workflow has another name for it."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One line, as a run to be started."""

    line: int
    title: str
    key: str
    """Unlike those of all other lines of the file."""
    workflow: Workflow[..., Any]
    input: bytes
    """The workflow's arguments as JSON."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no task, and why."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


def read(
    lines: Iterable[str], defaults: Mapping[str, Any] | None = None
) -> tuple[list[BatchTask], list[BadLine]]:
    """The tasks of a file, and the lines that are none. Empty lines count but say nothing."""
    tasks: list[BatchTask] = []
    bad: list[BadLine] = []
    seen: Counter[str] = Counter()
    named: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            task = _task(number, text, dict(defaults or {}), seen, named)
        except CodecError as error:
            bad.append(BadLine(number, error.message.removeprefix("$.")))
        except HoldfastError as error:
            hint = f" ({error.hint})" if error.hint else ""
            bad.append(BadLine(number, f"{error.message}{hint}"))
        else:
            tasks.append(task)
    return tasks, bad


def _task(
    number: int, text: str, defaults: dict[str, Any], seen: Counter[str], named: dict[str, int]
) -> BatchTask:
    given = _object(text)
    id = given.pop("id", None)
    if id is not None and (not isinstance(id, str) or not id.strip()):
        raise UsageError("id should be a text")
    on_repo = "repo" in given
    workflow: Workflow[..., Any] = repair_repo if on_repo else evaluate_code
    wanted = "task" if on_repo else "prompt"
    known = _fields(workflow, on_repo)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(sorted(known))}")
            raise UsageError(f"there is no {name!r} in a task", hint=hint)
    words = given.get(wanted)
    if not isinstance(words, str) or not words.strip():
        raise UsageError(f"{wanted!r} is missing or empty")
    merged = {**{k: v for k, v in defaults.items() if k in known and v is not None}, **given}
    if "language" in merged:
        merged["language"] = language_named(str(merged["language"])).name
    if not on_repo:
        merged.setdefault("attempts", code_settings().attempts)
    if on_repo:
        merged["repo"] = find_source(str(merged["repo"])).place
    renamed = _NAMES if not on_repo else {"repo": "source"}
    arguments = {renamed.get(name, name): value for name, value in merged.items()}
    args, kwargs = workflow.signature.decode_arguments(json.dumps(arguments).encode())
    input = workflow.signature.encode_arguments(args, kwargs)
    key = _key(number, id, workflow.name, input, seen, named)
    return BatchTask(number, words.strip().splitlines()[0], key, workflow, input)


def _key(
    number: int,
    id: str | None,
    workflow: str,
    input: bytes,
    seen: Counter[str],
    named: dict[str, int],
) -> str:
    if id is not None:
        if id in named:
            raise UsageError(f"the id {id!r} is that of line {named[id]}, too")
        named[id] = number
        return f"id:{id}"
    digest = hashlib.blake2b(workflow.encode() + b"\n" + input, digest_size=12).hexdigest()
    seen[digest] += 1
    return digest if seen[digest] == 1 else f"{digest}:{seen[digest]}"


def _fields(workflow: Workflow[..., Any], on_repo: bool) -> set[str]:
    parameters = set(inspect.signature(workflow.function).parameters)
    if on_repo:
        return parameters - {"source"} | {"repo"}
    return parameters - {"max_attempts"} | {"attempts"}


def _object(text: str) -> dict[str, Any]:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError("no JSON object", hint='such as {"prompt": "…"}')
    return cast("dict[str, Any]", data)


# --- what came of them ---


Ending = Literal["passed", "not passed", "failed", "cancelled", "stuck"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one task."""

    line: int
    title: str
    run_id: str
    ending: Ending
    summary: str
    """Its verdict or its error, in one line."""
    attempts: int
    seconds: float
    tokens: int
    usd: Decimal | None
    """None if a price is unknown."""
    again: bool
    """Whether it had ended before this batch was begun: nothing was done for it now."""
    value: Any = None
    """What the run returned, as JSON."""

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "task": self.title,
            "run": self.run_id,
            "result": self.ending,
            "passed": self.ending == "passed",
            "summary": self.summary,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "tokens": self.tokens,
            "usd": None if self.usd is None else str(self.usd),
            "ended_before": self.again,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """All results of a batch together."""

    tasks: int
    passed: int
    not_passed: int
    failed: int
    """Ended without a result."""
    open: int
    """Not ended yet, or not begun."""
    again: int
    tokens: int
    usd: Decimal
    """Of those whose price is known."""
    unpriced: int
    """Tasks with a price that is not."""
    busy: float
    """Seconds of all runs, whether or not at once."""

    def as_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "passed": self.passed,
            "not_passed": self.not_passed,
            "failed": self.failed,
            "open": self.open,
            "ended_before": self.again,
            "tokens": self.tokens,
            "usd": str(self.usd),
            "unpriced": self.unpriced,
            "busy_seconds": round(self.busy, 3),
        }


def totals(results: Sequence[Result], tasks: int) -> Totals:
    """The totals over what has ended, of so many tasks."""
    endings = [result.ending for result in results]
    known = [result.usd for result in results if result.usd is not None]
    return Totals(
        tasks=tasks,
        passed=endings.count("passed"),
        not_passed=endings.count("not passed"),
        failed=sum(ending not in ("passed", "not passed") for ending in endings),
        open=tasks - len(results),
        again=sum(result.again for result in results),
        tokens=sum(result.tokens for result in results),
        usd=sum(known, Decimal(0)),
        unpriced=len(results) - len(known),
        busy=sum(result.seconds for result in results),
    )


# --- carrying them out ---


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
        children = await list_runs(parent=run.id, limit=1000)
        family = (run.id, *(child.id for child in children.runs))
        totals = await default_gateway().ledger.totals(family)
        return Result(
            line=task.line,
            title=task.title,
            run_id=run.id,
            ending=ending,
            summary=_summary(run, facts),
            attempts=_attempts(facts),
            seconds=max((run.finished_at or 0.0) - (run.started_at or 0.0), 0.0),
            tokens=totals.tokens,
            usd=totals.usd,
            again=again,
            value=value,
        )


def _summary(run: Run, facts: dict[str, Any]) -> str:
    if run.status != "completed":
        return run.error or run.status
    verdict: Any = facts.get("verdict")  # the repo agent's; the code agent has it on top
    return str((verdict or facts).get("summary") or "")


def _attempts(facts: dict[str, Any]) -> int:
    tries: list[dict[str, Any]] = facts.get("tries") or []
    return int(facts.get("attempts") or max((t.get("rounds", 0) for t in tries), default=0))
