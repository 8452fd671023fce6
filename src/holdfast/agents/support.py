"""A support agent that may refund, and asks a manager above a limit.

    answer = support(MyShop(), model="anthropic/claude-sonnet-4.6")   # a workflow
    run = await start(answer, Ticket("c_17", "Order A-1 arrived broken, I want my 900 back."))

It looks orders up and pays them back. What is above `limit` waits for a manager, for `wait` at
most; if none decides, it is declined. In every case the customer is told, once. What must hold is
held by code, not by the model: only the customer's own orders, no more than was paid, and no
splitting of a refund to stay below the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

from holdfast.durations import Duration
from holdfast.errors import FatalError
from holdfast.loop import Agent, AgentResult, tool
from holdfast.loop.approvals import Notify
from holdfast.runtime.context import step_context
from holdfast.runtime.definitions import Workflow, step, workflow

SYSTEM = """\
You answer customers of a shop. Look an order up before you say anything about it. If it went
wrong, refund what is fair, never more than was paid. Large refunds have to be approved; asking is
part of the tool, and may take a day. If a refund was denied, say so plainly and kindly, and do not
try it again. If its outcome is unknown, look the order up to see whether it was paid back before
you do anything. Your last message goes to the customer as it is: write to them, briefly.
"""

SORRY = (
    "Thank you for writing to us. We could not settle this automatically; "
    "a colleague will answer you soon."
)

LIMIT = Decimal(500)


@dataclass(frozen=True)
class Order:
    """What a customer bought."""

    id: str
    customer: str
    item: str
    paid: Decimal
    refunded: Decimal = Decimal(0)


class Shop(Protocol):
    """What the agent needs of a shop. `key` is the same if something is done again."""

    async def order(self, id: str) -> Order | None:
        """An order, or None."""
        ...

    async def refund(self, order: str, amount: Decimal, key: str) -> str:
        """Pay back; the receipt's number."""
        ...

    async def tell(self, customer: str, text: str, key: str) -> None:
        """Send the customer a message."""
        ...


@dataclass(frozen=True)
class Ticket:
    """What a customer wrote."""

    customer: str
    text: str


@dataclass(frozen=True)
class Refund:
    """A refund that was asked for, and what came of it."""

    order: str
    amount: Decimal
    status: Literal["done", "failed", "wrong_arguments", "denied", "unknown", "not_run"]


@dataclass(frozen=True)
class Answer:
    """How a ticket was settled: what the customer was told, and the refunds in question."""

    text: str
    refunds: tuple[Refund, ...]
    settled: bool
    """False if the agent did not get to an end: somebody has to look."""


def support(
    shop: Shop,
    *,
    model: str,
    limit: Decimal | int = LIMIT,
    wait: Duration = "24h",
    approvers: str = "manager",
    notify: Notify | None = None,
    name: str = "support",
) -> Workflow[[Ticket], Answer]:
    """The workflow that answers a ticket. Make it once, at module level, so that workers know it.

    `limit`: refunds above it need an approval. `wait`: how long to wait for one. `notify`: an
    async function that tells the approvers (see `approval`).
    """
    most = Decimal(limit)

    @step(name="tell the customer")
    async def tell(customer: str, text: str) -> None:
        await shop.tell(customer, text, step_context().idempotency_key)

    async def answer(ticket: Ticket) -> Answer:
        agent = _agent(shop, ticket.customer, model, most, wait, approvers, notify)
        result = await agent.run(ticket.text)
        settled = result.finish == "stop" and bool(result.text.strip())
        text = result.text if settled else SORRY
        await tell(ticket.customer, text)
        return Answer(text, _refunds(result), settled)

    return workflow(name=name)(answer)


def _agent(
    shop: Shop,
    customer: str,
    model: str,
    limit: Decimal,
    wait: Duration,
    approvers: str,
    notify: Notify | None,
) -> Agent:
    async def own(id: str) -> Order:
        found = await shop.order(id)
        if found is None or found.customer != customer:
            raise FatalError(f"this customer has no order {id}")
        return found

    @tool(idempotent=True, timeout="30s")
    async def look_up_order(order: str) -> Order:
        """An order of this customer: what was bought, paid, and paid back so far.

        Args:
            order: The order's number, such as A-1001.
        """
        return await own(order)

    @tool(
        timeout="1m",
        concurrency=1,
        needs_approval=lambda args: args.amount > limit,
        approval_timeout=wait,
        approvers=approvers,
        notify=notify,
    )
    async def refund(order: str, amount: Decimal, reason: str) -> str:
        """Pay back some or all of what was paid for an order.

        Args:
            order: The order's number.
            amount: How much to pay back.
            reason: Why, in a few words; for the record and for whoever has to approve.
        """
        found = await own(order)
        if not amount.is_finite() or amount <= 0:
            raise FatalError(f"{amount} is nothing to pay back")
        if found.refunded + amount > found.paid:
            raise FatalError(f"only {found.paid - found.refunded} of {order} can be paid back")
        if amount <= limit < found.refunded + amount:
            raise FatalError(
                f"{found.refunded} of {order} was paid back before; a further {amount} would pass "
                f"{limit} without an approval"
            )
        receipt = await shop.refund(order, amount, step_context().idempotency_key)
        return f"paid back {amount}, receipt {receipt}"

    return Agent(
        model, SYSTEM, [look_up_order, refund], name="support", max_steps=12, max_time="15m"
    )


def _refunds(result: AgentResult[str]) -> tuple[Refund, ...]:
    runs = [run for each in result.steps for run in each.tools if run.name == "refund"]
    return tuple(
        Refund(run.arguments["order"], Decimal(run.arguments["amount"]), run.status)
        for run in runs
        if run.arguments is not None
    )
