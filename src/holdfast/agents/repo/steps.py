"""The durable steps of the repo agent.

A step of a tool names the state of the files it works on. If this process has no workspace in
that state, it does nothing and says that the workspace is lost; the run then has it made anew
from the snapshot and the patches of the steps before, all of them on record. So a step that was
cut short, with its sandbox, has changed nothing that anybody sees, and is simply done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal

from holdfast.agents.code.models import choose
from holdfast.agents.code.settings import load as load_code
from holdfast.agents.repo import (
    checkout,
    prompts,
    settings,
    snapshots,
    sources,
    tool_actions,
    verdict,
)
from holdfast.agents.repo.records import (
    Base,
    Patch,
    Plan,
    Spent,
    TestRun,
    Verdict,
)
from holdfast.agents.repo.tool_actions import Answer, Wrong
from holdfast.agents.repo.workspace import Workspace, close_open, find_open, keep_open
from holdfast.errors import SandboxGone, UsageError
from holdfast.gateway import default_gateway
from holdfast.records.calls import NANO, Call, SpendLimit
from holdfast.runtime.context import step_context
from holdfast.runtime.definitions import step

_MOST_CALLS = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a tool: words for the model, and what it changed."""

    text: str = ""
    is_error: bool = False
    lost: bool = False
    """The workspace is gone, and nothing was done."""
    tree: str | None = None
    """The state of the files afterwards, if it is another."""
    patch: Patch | None = None
    """What leads from the state before to this one."""


# --- before and after ---


@step(retries=2, timeout="5m")
async def settle(
    model: str | None,
    budget: Decimal | None,
    attempts: int | None,
    max_steps: int | None,
    max_time: float | None,
    agent: str | None,
) -> Plan:
    """Settle the model and the limits, and set the run's budget."""
    gateway, chosen = default_gateway(), settings.load()
    because = "named for this run"
    if model is None and chosen.model is not None:
        model, because = chosen.model, "configured"
    if model is None:
        found = await choose(gateway, load_code())
        if found.is_demo and agent is None:
            raise UsageError(
                "no model is usable here",
                hint="set a provider's key, or name a model with --model; "
                "`holdfast models list` shows what is usable",
            )
        model, because = ("", found.because) if found.is_demo else (found.model, found.because)
    if model:
        gateway.routes.candidates(model)  # raises for a model that can't be had here
    limit = budget if budget is not None else chosen.budget
    if limit is not None:
        scope = f"run:{step_context().run_id}"
        await gateway.ledger.set_limit(SpendLimit(scope, usd=int(limit * NANO)))
    return Plan(
        model=model,
        because=because,
        attempts=attempts or chosen.attempts,
        max_steps=max_steps or chosen.max_steps,
        max_tokens=chosen.max_tokens,
        max_time=max_time or chosen.max_time,
        test_timeout=chosen.test_timeout,
        command_timeout=chosen.command_timeout,
        memory=chosen.memory,
        pids=chosen.pids,
        backend=chosen.backend,
        prompts=prompts.load(),
    )


@step(retries=1, timeout="1h")
async def take_repo(
    source: str, plan: Plan, committed: bool, test_command: str | None, setup: tuple[str, ...]
) -> Base:
    """Copy the repo into a sandbox and keep it as the run's base."""
    await snapshots.delete_strays(step_context().run_id)
    return await checkout.take(
        sources.find(source), plan, committed=committed, test_command=test_command, setup=setup
    )


@step(retries=2, timeout="1h")
async def run_tests(base: Base, plan: Plan) -> TestRun | None:
    """Run the repo's tests before anything is changed."""
    return await verdict.run_tests(base, plan)


@step(retries=2, timeout="2h")
async def judge(
    base: Base,
    plan: Plan,
    patches: tuple[Patch, ...],
    before: TestRun | None,
    keep_tests: bool,
    round: int,
) -> Verdict:
    """Run the repo's tests on base and patch, in a fresh sandbox."""
    return await verdict.judge(base, plan, patches, before, keep_tests=keep_tests)


@step(retries=2, timeout="5m")
async def join_budget(parent: str) -> None:
    """Count this run's model calls against its parent's budget as well."""
    await default_gateway().ledger.link(f"run:{step_context().run_id}", f"run:{parent}")


@step(retries=2, timeout="5m")
async def add_up(runs: tuple[str, ...]) -> Spent:
    """What the model calls of these runs came to."""
    ledger = default_gateway().ledger
    calls: list[Call] = []
    for run_id in runs:
        calls += await ledger.calls(run_id=run_id, limit=_MOST_CALLS)
    ended = [call.end for call in calls if call.end is not None]
    costs = [end.cost for end in ended]
    known = None if None in costs else Decimal(sum(c for c in costs if c is not None)) / NANO
    tokens = sum(end.input_tokens + end.output_tokens for end in ended)
    return Spent(known, tokens, len(calls))


@step(retries=2, timeout="5m")
async def close_workspace() -> None:
    """End the sandbox the agent worked in."""
    await close_open(step_context().run_id)


@step(retries=2, timeout="5m")
async def let_go(snapshot: str) -> None:
    """Delete the snapshot of the repo: nothing of the run needs it any more."""
    await snapshots.delete(snapshot)


@step(retries=1, timeout="24h")
async def run_agent(
    base: Base,
    plan: Plan,
    patches: tuple[Patch, ...],
    command: str,
    task: str,
    seconds: float,
    round: int,
) -> Outcome:
    """Let another coding agent work, in a sandbox that reaches the gateway alone.

    One step: a run that dies in the middle of it begins it anew, from the patches before.
    """
    from holdfast.agents.repo import external_agents  # with a web server, which few runs need

    said, changed = await external_agents.work(
        default_gateway(), step_context().run_id, base, plan, patches, command, task, seconds
    )
    if changed is None:
        return Outcome(said)
    return Outcome(said, tree=changed[0], patch=changed[1])


# --- tools ---


@step(retries=2, timeout="10m")
async def open_workspace(base: Base, plan: Plan, patches: tuple[Patch, ...], tree: str) -> None:
    """Make the agent's workspace, in the state that is on record."""
    workspace = await Workspace.open(base, plan, patches, tree, seconds=plan.max_time + 600)
    await keep_open(step_context().run_id, workspace)


async def _on(tree: str, tool: Callable[[Workspace], Awaitable[Answer]]) -> Outcome:
    """Use a tool on the run's workspace in this state."""
    run_id = step_context().run_id
    workspace = find_open(run_id, tree)
    if workspace is None:
        return Outcome(lost=True)
    try:
        try:
            answer = await tool(workspace)
        except Wrong as wrong:
            answer = Answer(str(wrong), is_error=True)
        if not workspace.sandbox.running:
            return Outcome(answer.text, answer.is_error)
        changed = await workspace.changes()
    except SandboxGone as gone:
        await close_open(run_id)
        return Outcome(f"the sandbox ended: {gone.message}", is_error=True)
    except BaseException:
        await close_open(run_id)  # half-done: the next step starts from what is on record
        raise
    if changed is None:
        return Outcome(answer.text, answer.is_error)
    return Outcome(answer.text, answer.is_error, tree=changed[0], patch=changed[1])


async def _look(tree: str, tool: Callable[[Workspace], Awaitable[Answer]]) -> Outcome:
    """Use a tool that changes nothing."""
    workspace = find_open(step_context().run_id, tree)
    if workspace is None:
        return Outcome(lost=True)
    try:
        answer = await tool(workspace)
    except Wrong as wrong:
        return Outcome(str(wrong), is_error=True)
    except SandboxGone as gone:
        return Outcome(f"the sandbox ended: {gone.message}", is_error=True)
    return Outcome(answer.text, answer.is_error)


@step(retries=1, timeout="2m")
async def read_file(tree: str, path: str, start: int, lines: int) -> Outcome:
    return await _look(tree, lambda w: tool_actions.read_file(w, path, start, lines))


@step(retries=1, timeout="2m")
async def list_files(tree: str, path: str, recursive: bool) -> Outcome:
    return await _look(tree, lambda w: tool_actions.list_files(w, path, recursive))


@step(retries=1, timeout="2m")
async def search(tree: str, pattern: str, path: str, glob: str) -> Outcome:
    return await _look(tree, lambda w: tool_actions.search(w, pattern, path, glob))


@step(retries=1, timeout="5m")
async def edit_file(tree: str, path: str, old: str, new: str, every: bool) -> Outcome:
    return await _on(tree, lambda w: tool_actions.edit_file(w, path, old, new, every))


@step(retries=1, timeout="5m")
async def write_file(tree: str, path: str, content: str) -> Outcome:
    return await _on(tree, lambda w: tool_actions.write_file(w, path, content))


@step(retries=1, timeout="30m")
async def run(tree: str, command: str, seconds: float) -> Outcome:
    return await _on(tree, lambda w: tool_actions.run(w, command, seconds))
