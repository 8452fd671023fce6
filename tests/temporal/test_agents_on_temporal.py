"""The ready-made agents, unchanged, on Temporal: models, approvals and sandboxes in its activities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dev_server import DevServer

from agents.repo import repos
from agents.repo.conftest import as_say, edit, finish
from gateway.support import make_gateway
from holdfast import decide, list_approvals, open_engine, start
from holdfast.agents.code import evaluate_code
from holdfast.agents.repo import repair_repo
from holdfast.agents.support import Order, Ticket, support
from holdfast.gateway import Say, ScriptedModel, use_gateway
from holdfast.gateway.messages import Request

WRONG = "```python\ndef double(n):\n    return 3 * n\n```"
RIGHT = "WRONG: code. It trebled.\n```python\ndef double(n):\n    return 2 * n\n```"
TESTS = (
    "```python\nfrom solution import double\n\n\ndef test_double():\n    assert double(2) == 4\n```"
)


@pytest.fixture
async def temporal(tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_REPO_BACKEND", "namespace")
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        yield engine


@pytest.fixture
async def gateway() -> AsyncIterator[None]:
    made = make_gateway()
    use_gateway(made)
    yield
    use_gateway(None)
    await made.close()


async def test_the_code_agent_heals_its_program(temporal: Any) -> None:
    codes = iter([WRONG, RIGHT])

    def writer(request: Request) -> Any:
        return TESTS if "You write tests" in request.messages[0].text else next(codes)

    with ScriptedModel("writer-on-temporal", writer) as model:
        run = await start(evaluate_code, "Write double(n)", model="scripted/writer-on-temporal")
        found = await run.result()
        assert len(model.requests) == 3
    assert found.passed and found.attempts == 2
    names = [step.name for step in await run.steps()]
    assert names[:2] == ["prepare", "generate_code"]


class Shop:
    def __init__(self) -> None:
        self.orders = {"A-1": Order("A-1", "ada", "armchair", Decimal(900))}
        self.refunds: list[str] = []

    async def order(self, id: str) -> Order | None:
        return self.orders.get(id)

    async def refund(self, order: str, amount: Decimal, key: str) -> str:
        self.refunds.append(order)
        self.orders[order] = replace(self.orders[order], refunded=amount)
        return "R-1"

    async def tell(self, customer: str, text: str, key: str) -> None:
        return


async def test_the_support_agent_waits_for_a_manager(temporal: Any, gateway: None) -> None:
    def clerk(request: Any) -> Say:
        if request.messages[-1].role == "user":
            asked = {"order": "A-1", "amount": "900", "reason": "broken"}
            return Say(tools=[("refund", asked)])
        return Say("done")

    shop = Shop()
    with ScriptedModel("clerk-on-temporal", clerk) as model:
        flow = support(shop, model="scripted/clerk-on-temporal", name="support-on-temporal")
        run = await start(flow, Ticket("ada", "It is broken"))
        async with asyncio.timeout(200):
            while not (asked := await list_approvals()):
                await asyncio.sleep(0.02)
        assert shop.refunds == [] and asked[0].asked_of == "manager"
        await decide(asked[0].id, True, by="grace")
        answer = await run.result()
        assert len(model.requests) == 2
    assert shop.refunds == ["A-1"] and answer.refunds[0].status == "done"


async def test_the_repo_agent_mends_a_repo(temporal: Any, gateway: None, tmp_path: Path) -> None:
    repo = repos.make(tmp_path / "slugs", repos.SLUGS)
    script = [as_say(edit(repos.SLUGS_FIX)), as_say(finish("mended"))]
    with ScriptedModel("coder-on-temporal", script):
        task = "Make the tests pass"
        run = await start(repair_repo, str(repo), task, model="scripted/coder-on-temporal")
        result = await run.result()
    assert result.passed and result.summary == "mended"
    assert result.patch.text.count("diff --git") == 1
