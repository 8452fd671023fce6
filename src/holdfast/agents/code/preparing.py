"""What is settled once at the start of a run: its models, its budget, its packages."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from holdfast.agents.code import toolchain
from holdfast.agents.code.languages import Language
from holdfast.agents.code.models import check_demo, check_models, choose
from holdfast.agents.code.records import Plan
from holdfast.agents.code.settings import load
from holdfast.gateway import default_gateway
from holdfast.records.calls import NANO, SpendLimit
from holdfast.sandbox import default_host
from holdfast.sandbox.spec import Limits, Spec

_warming: set[asyncio.Task[None]] = set()


async def settle(
    run_id: str,
    task: str,
    language: Language,
    model: str | None,
    test_model: str | None,
    budget: Decimal | None,
    packages: tuple[str, ...],
) -> Plan:
    """Choose the models, limit what the run may spend, make the sandbox's packages ready."""
    gateway, settings = default_gateway(), load()
    because = "named for this run"
    if model is None:
        chosen = await choose(gateway, settings)
        model, because = chosen.model, chosen.because
    test_model = test_model or settings.test_model or model
    toolchain.check_packages(language, packages)
    check_models(gateway, model, test_model)
    check_demo(task, language.name, model, test_model)
    limit = budget if budget is not None else settings.budget
    if limit is not None:
        amount = SpendLimit(f"run:{run_id}", usd=int(limit * NANO))
        await gateway.ledger.set_limit(amount)
    source = await toolchain.ready(language, packages)
    if source is None:
        _warm(Spec(language.runtime, Limits.of(memory=settings.memory, pids=settings.pids)))
    return Plan(model, test_model, because)


def _warm(spec: Spec) -> None:
    """Have a sandbox like the tests' ready by the time the models have answered.

    Whether that works is for the step that needs the sandbox to say.
    """
    task = asyncio.get_running_loop().create_task(default_host().warm(spec=spec))
    _warming.add(task)
    task.add_done_callback(_warmed)


def _warmed(task: asyncio.Task[None]) -> None:
    _warming.discard(task)
    if not task.cancelled():
        task.exception()
