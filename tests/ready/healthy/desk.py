"""A support desk: a model reads a ticket, a person agrees to a refund, a program checks the sum."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from holdfast import (
    Agent,
    Failure,
    Sandbox,
    start,
    step,
    step_context,
    tool,
    wait_for_event,
    workflow,
)


@dataclass(frozen=True)
class Ticket:
    customer: str
    text: str


@dataclass(frozen=True)
class Answer:
    text: str
    paid: Decimal = Decimal(0)


class Bank:
    """What pays back. A real one is a payment provider."""

    def refund(self, order: str, amount: Decimal, key: str) -> str:
        return f"R-{order}-{key[:4]}"


class Chat:
    def post(self, words: str, key: str) -> None:
        """Tell whoever is on duty."""


BANK, CHAT = Bank(), Chat()


@step(timeout="30s")
async def tell_somebody(words: str) -> None:
    CHAT.post(words, step_context().idempotency_key)


@workflow(timeout="1h")
async def report_failure(failure: Failure) -> None:
    await tell_somebody(f"{failure.workflow} {failure.run_id}: {failure.error}")


@tool(idempotent=True, timeout="30s")
async def look_up(order: str) -> str:
    """An order, by its number.

    Args:
        order: The number on the invoice.
    """
    return f"{order}: a lamp, 40 paid"


@tool(
    idempotent=False, timeout="1m", needs_approval=lambda args: True, approval_timeout="24h",
)  # fmt: skip
async def refund(order: str, amount: Decimal) -> str:
    """Pay an order back.

    Args:
        order: The number on the invoice.
        amount: How much.
    """
    return BANK.refund(order, amount, step_context().idempotency_key)


clerk = Agent(
    "anthropic/claude-sonnet-4.6", "You answer for a shop.", [look_up, refund], max_steps=8
)


@step(timeout="2m")
async def check(text: str) -> int:
    async with await Sandbox.create(timeout="1m", memory="256mb") as sandbox:
        done = await sandbox.run("python3", "-c", "print(len(input()))", stdin=text)
        return int(done.stdout)


@workflow(timeout="3d", on_failure=report_failure)
async def answer(ticket: Ticket) -> Answer:
    reply = await clerk.run(ticket.text)
    length = await check(reply.text)
    told = await wait_for_event(
        "customer.replied", match={"customer": ticket.customer}, timeout="1d"
    )
    if not told:
        return Answer(f"closed after {length} characters")
    return Answer(str(told.payload))


app: Any = type("Routes", (), {"post": staticmethod(lambda path: lambda function: function)})


@app.post("/tickets")
async def open_ticket(id: str, ticket: Ticket) -> str:
    run = await start(answer.options(key=f"ticket-{id}"), ticket)
    return run.id
