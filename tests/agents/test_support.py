"""The support agent: small refunds at once, large ones after a manager, none without a word."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.support import make_gateway
from holdfast import Approval, decide, get_approval, list_approvals, start
from holdfast.agents.support import SORRY, Order, Ticket, support
from holdfast.gateway import Say, ScriptedModel, use_gateway
from holdfast.testing import Harness

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
async def gateway() -> AsyncIterator[None]:
    made = make_gateway()
    use_gateway(made)
    yield
    use_gateway(None)
    await made.close()


class TestShop:
    """A shop that remembers what was done to it."""

    __test__ = False

    def __init__(self) -> None:
        self.orders = {
            "A-1": Order("A-1", "ada", "armchair", Decimal(900)),
            "B-1": Order("B-1", "ben", "lamp", Decimal(40)),
        }
        self.refunds: list[tuple[str, Decimal]] = []
        self.told: list[tuple[str, str]] = []
        self.stuck: asyncio.Event | None = None

    async def order(self, id: str) -> Order | None:
        return self.orders.get(id)

    async def refund(self, order: str, amount: Decimal, key: str) -> str:
        found = self.orders[order]
        self.refunds.append((order, amount))
        self.orders[order] = replace(found, refunded=found.refunded + amount)
        if self.stuck is not None:
            self.stuck.set()
            await asyncio.Event().wait()
        return "R-1"

    async def tell(self, customer: str, text: str, key: str) -> None:
        self.told.append((customer, text))


@pytest.fixture
def shop() -> TestShop:
    return TestShop()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Asks for what the ticket says: `refund A-1 900` and the like, then repeats what it is told."""

    def clerk(request: Any) -> Say:
        last = request.messages[-1]
        if last.role == "user":
            wanted = re.findall(r"refund (\S+) (\S+)", last.text)
            calls = [("refund", {"order": o, "amount": a, "reason": "r"}) for o, a in wanted]
            looks = re.findall(r"look (\S+)", last.text)
            return Say(tools=[*calls, *(("look_up_order", {"order": o}) for o in looks)])
        return Say(" / ".join(part.text for part in last.parts))

    with ScriptedModel("clerk", clerk) as made:
        yield made


async def run_ticket(shop: TestShop, text: str, customer: str = "ada") -> Any:
    flow = support(shop, model="scripted/clerk", name="support-test")
    return await start(flow, Ticket(customer, text))


async def test_a_small_refund_needs_nobody(harness: Harness, shop: TestShop, model: Any):
    answer = await (await run_ticket(shop, "refund A-1 500")).result()
    assert shop.refunds == [("A-1", Decimal(500))]
    assert shop.told == [("ada", "paid back 500, receipt R-1")]
    assert (answer.settled, answer.refunds[0].status) == (True, "done")
    assert await list_approvals(status=None) == []


async def test_a_large_one_waits_for_a_manager(harness: Harness, shop: TestShop, model: Any):
    run = await run_ticket(shop, "refund A-1 900")
    await harness.skip("23h")
    assert (shop.refunds, shop.told) == ([], [])
    (asked,) = await list_approvals()
    assert asked.arguments == {"order": "A-1", "amount": "900", "reason": "r"}
    assert asked.asked_of == "manager"
    await harness.crash()
    await decide(asked.id, True, by="grace")
    answer = await run.result()
    assert shop.refunds == [("A-1", Decimal(900))]
    assert (len(shop.told), answer.refunds[0].status) == (1, "done")
    assert len(model.requests) == 2, "nothing before the pause was done again"


async def test_if_nobody_decides_it_is_declined_and_the_customer_told(
    harness: Harness, shop: TestShop, model: Any
):
    began = harness.clock.now()
    answer = await (await run_ticket(shop, "refund A-1 501")).result()
    assert harness.clock.now() - began >= 24 * 3600
    assert shop.refunds == []
    ((customer, text),) = shop.told
    assert customer == "ada" and "nobody approved it in time" in text
    assert (answer.refunds[0].status, answer.settled) == ("denied", True)


async def test_a_manager_may_say_no(harness: Harness, shop: TestShop, model: Any):
    run = await run_ticket(shop, "refund A-1 900")
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, False, by="grace", note="No receipt.")
    assert "Denied by grace. No receipt." in (await run.result()).text
    assert shop.refunds == []


async def test_managers_are_told(harness: Harness, shop: TestShop, model: Any):
    mails: list[str] = []

    async def mail(asked: Approval, token: str) -> None:
        mails.append(f"{asked.id} {token}")

    flow = support(shop, model="scripted/clerk", notify=mail, name="support-test")
    run = await start(flow, Ticket("ada", "refund A-1 900"))
    await harness.until_blocked()
    (mail_text,) = mails
    id, token = mail_text.split()
    await decide(id, True, by="grace", token=token)
    await run.result()
    assert (await get_approval(id)).how == "webhook"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("refund B-1 40", "this customer has no order B-1"),
        ("look B-1", "this customer has no order B-1"),
        ("refund A-1 0", "nothing to pay back"),
        ("refund A-1 -5", "nothing to pay back"),
        ("refund A-1 NaN", "wrong arguments"),
    ],
)
async def test_what_must_hold_is_held_by_code(
    harness: Harness, shop: TestShop, model: Any, text: str, told: str
):
    answer = await (await run_ticket(shop, text)).result()
    assert told in answer.text
    assert shop.refunds == []


async def test_no_more_than_was_paid_is_paid_back(harness: Harness, shop: TestShop, model: Any):
    run = await run_ticket(shop, "refund A-1 1000")
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, True, by="grace")
    assert "only 900 of A-1" in (await run.result()).text
    assert shop.refunds == []


async def test_a_refund_can_not_be_split_to_stay_below_the_limit(
    harness: Harness, shop: TestShop, model: Any
):
    answer = await (await run_ticket(shop, "refund A-1 450 and refund A-1 450")).result()
    assert shop.refunds == [("A-1", Decimal(450))]
    assert [each.status for each in answer.refunds] == ["done", "failed"]
    again = await (await run_ticket(shop, "refund A-1 200")).result()
    assert "would pass 500 without an approval" in again.text
    assert len(shop.refunds) == 1


async def test_an_interrupted_refund_is_not_made_twice(
    harness: Harness, shop: TestShop, model: Any
):
    shop.stuck = asyncio.Event()
    run = await run_ticket(shop, "refund A-1 100")
    await shop.stuck.wait()
    await harness.crash()
    answer = await run.result()
    assert shop.refunds == [("A-1", Decimal(100))]
    assert answer.refunds[0].status == "unknown"


async def test_a_customer_is_told_also_if_the_agent_gets_nowhere(harness: Harness, shop: TestShop):
    with ScriptedModel("clerk", [Say(tools=[("look_up_order", {"order": "A-1"})])] * 20):
        answer = await (await run_ticket(shop, "hello")).result()
    assert shop.told == [("ada", SORRY)]
    assert (answer.text, answer.settled) == (SORRY, False)


def test_the_example_runs(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "support.py")],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "HOLDFAST_STORE": str(tmp_path / "s.db")},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["small", "done"],
        ["waiting", "refund(900)"],
        ["approved", "done"],
        ["late", "denied"],
    ]
    assert lines[4] == "3 customers told, 940 paid back"
    assert done.stderr == ""
