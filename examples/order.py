"""An order, from reservation to shipping: steps, branches at once, a wait with a time limit.

    holdfast run examples/order.py:fulfil --input '{"order": {"id": "A-1", "item": "lamp"}}'
    holdfast events send approval --payload '{"order": "A-1"}'

What a step does is imitated by a pause and a line in the file that ORDER_LOG names.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast import set_attributes, step, step_context, wait_for_event, workflow


@dataclass
class Order:
    id: str
    item: str
    amount: int = 40


@dataclass
class Shipment:
    order: str
    tracking: str | None
    note: str


@workflow
async def fulfil(order: Order) -> Shipment:
    set_attributes(order=order.id)
    await reserve(order.item)
    payment = await charge(order.id, order.amount)

    # Two branches at once. Each has its own steps, and its own place in the journal.
    async with asyncio.TaskGroup() as tasks:
        parcel = tasks.create_task(prepare(order.item))
        label = tasks.create_task(print_label(order.id))

    # Hours or days may pass here. A run that waits costs a few rows, no process.
    approval = await wait_for_event("approval", match={"order": order.id}, timeout="24h")
    if not approval:
        await refund(payment)
        return Shipment(order.id, None, "nobody approved it in time: refunded")

    tracking = await ship(parcel.result(), label.result())
    return Shipment(order.id, tracking, "shipped")


async def prepare(item: str) -> str:
    fetched = await fetch(item)
    return await pack(fetched)


@step
async def reserve(item: str) -> str:
    return await work(f"reserved {item}")


@step(retries=5, timeout="30s")
async def charge(order: str, amount: int) -> str:
    # A real one hands step_context().idempotency_key to the payment provider: it is the same
    # for every attempt, so that the provider charges once whatever happens to us.
    return await work(f"charged {amount}")


@step
async def fetch(item: str) -> str:
    return await work(f"fetched {item}")


@step
async def pack(fetched: str) -> str:
    return await work("packed", seconds=1.0)


@step
async def print_label(order: str) -> str:
    return await work(f"label for {order}")


@step
async def ship(parcel: str, label: str) -> str:
    return await work("TRK-7301")


@step
async def refund(payment: str) -> str:
    return await work("refunded")


async def work(result: str, seconds: float = 0.3) -> str:
    """Pretend to do what a step does, and keep a record that the journal knows nothing of."""
    name = step_context().step
    log(f"begin {name}")
    await asyncio.sleep(seconds)
    log(f"end {name}")
    return result


def log(line: str) -> None:
    if "ORDER_LOG" in os.environ:
        with Path(os.environ["ORDER_LOG"]).open("a") as file:
            file.write(f"{line}\n")
