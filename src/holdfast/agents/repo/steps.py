"""The durable steps of the repo agent before, between and after its tools: those are in tools.py.

A step that was cut short, with its sandbox, has changed nothing that anybody sees: the state of the
files is on record as a snapshot and patches, so the step is simply done again.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal

from holdfast.agents import prompts
from holdfast.agents.models import NONE_USABLE, choose, set_budget
from holdfast.agents.repo import checkout, verdict, workspace
from holdfast.agents.repo.records import (
    Base,
    Patch,
    Plan,
    Prompts,
    Spent,
    TestRun,
    Verdict,
)
from holdfast.agents.repo.tools import Outcome
from holdfast.agents.settings import code_settings, repo_settings
from holdfast.errors import UsageError
from holdfast.gateway import default_gateway
from holdfast.runtime.context import step_context
from holdfast.runtime.definitions import step
from holdfast.sandbox import WorkspaceState

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
    gateway, settings = default_gateway(), repo_settings()
    because = "named for this run"
    if model is None:
        chosen = await choose(gateway, settings.model, code_settings().model)
        if chosen is None and agent is None:
            raise UsageError(
                "no model is usable here",
                hint="set a provider's key, or name a model with --model; "
                "`holdfast models list` shows what is usable",
            )
        model, because = (chosen.model, chosen.because) if chosen else ("", NONE_USABLE)
    if model:
        gateway.routes.candidates(model)  # raises for a model that can't be had here
    run_id = step_context().run_id
    await set_budget(gateway, run_id, budget if budget is not None else settings.budget)
    return Plan(
        model=model,
        because=because,
        attempts=attempts or settings.attempts,
        max_steps=max_steps or settings.max_steps,
        max_tokens=settings.max_tokens,
        max_time=max_time or settings.max_time,
        test_timeout=settings.test_timeout,
        command_timeout=settings.command_timeout,
        memory=settings.memory,
        pids=settings.pids,
        backend=settings.backend,
        prompts=Prompts(*(prompts.text("repo", name) for name in ("system", "task", "heal"))),
    )


@step(retries=1, timeout="1h")
async def take_repo(
    source: str, plan: Plan, committed: bool, test_command: str | None, setup: tuple[str, ...]
) -> Base:
    """Copy the repo into a sandbox and keep it as the run's base."""
    await workspace.delete_stray_snapshots(step_context().run_id)
    return await checkout.take(
        checkout.find_source(source),
        plan,
        committed=committed,
        test_command=test_command,
        setup=setup,
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
    totals = await default_gateway().ledger.totals(runs)
    return Spent(totals.usd, totals.tokens, totals.calls)


@step(retries=2, timeout="5m")
async def close_workspace() -> None:
    """End the sandbox the agent worked in."""
    await workspace.close_open(step_context().run_id)


@step(retries=2, timeout="5m")
async def let_go(snapshot: str) -> None:
    """Delete the snapshot of the repo: nothing of the run needs it any more."""
    await asyncio.to_thread(WorkspaceState(snapshot).delete)


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
