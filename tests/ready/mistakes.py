"""Thirty mistakes in small workflows, each as people make them, with the check that must find it.

Each function makes a scenario. `World` is what steps act on: a bank, a shelf, a mailbox, in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast import (
    approval,
    generate_text,
    sleep,
    step,
    step_context,
    wait_for_event,
    workflow,
)
from holdfast.ready.simulation import Scenario, SimulatedRun

MISTAKES: list[Callable[[], Scenario]] = []


def mistake(make: Callable[[], Scenario]) -> Callable[[], Scenario]:
    MISTAKES.append(make)
    return make


class World:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count: Counter[str] = Counter()
        self.log: list[str] = []
        self.state: dict[str, Any] = {}
        self.keys: set[str] = set()


def scenario(
    flow: Any, world: World, check: Callable[[SimulatedRun], Any], **more: Any
) -> Scenario:
    return Scenario(flow, checks={"check_it": check}, reset=world.reset, **more)


def acting(world: World, what: str, **options: Any) -> Any:
    """A step that acts as often as it is called."""

    @step(name=what, **options)
    async def act() -> str:
        world.count[what] += 1
        world.log.append(what)
        return what

    return act


def once(world: World, what: str, **options: Any) -> Any:
    """A step that acts once for its idempotency key, as a good service does."""

    @step(name=what, **options)
    async def act() -> str:
        key = step_context().idempotency_key
        if key not in world.keys:
            world.keys.add(key)
            world.count[what] += 1
            world.log.append(what)
        return what

    return act


@mistake
def refund_without_a_key() -> Scenario:
    world = World()
    refund = acting(world, "refund")

    @workflow(name="m1")
    async def flow() -> None:
        await refund()

    return scenario(flow, world, lambda run: world.count["refund"] <= 1)


@mistake
def mail_sent_with_each_attempt() -> Scenario:
    world = World()
    charge, mail = once(world, "charge"), acting(world, "mail")

    @workflow(name="m2")
    async def flow() -> None:
        await charge()
        await mail()

    return scenario(flow, world, lambda run: world.count["mail"] <= 1)


@mistake
def stock_taken_twice() -> Scenario:
    world = World()

    @step(name="take")
    async def take() -> int:
        world.state["stock"] = world.state.get("stock", 1) - 1
        return world.state["stock"]

    @workflow(name="m3")
    async def flow() -> int:
        return await take()

    return scenario(flow, world, lambda run: world.state.get("stock", 1) >= 0)


@mistake
def paid_and_never_shipped_when_the_event_is_late() -> Scenario:
    world = World()
    charge, ship = once(world, "charge"), once(world, "ship")

    @workflow(name="m4")
    async def flow() -> str:
        await charge()
        if not await wait_for_event("packed", timeout="1h"):
            return "given up"
        await ship()
        return "shipped"

    return scenario(flow, world, lambda run: world.count["charge"] == world.count["ship"])


@mistake
def a_wait_without_an_end() -> Scenario:
    world = World()

    @workflow(name="m5")
    async def flow() -> str:
        while not await wait_for_event("reply", timeout="1d"):
            pass
        return "replied"

    return scenario(flow, world, lambda run: True)


@mistake
def an_order_made_by_each_attempt() -> Scenario:
    world = World()

    @step(name="create")
    async def create() -> str:
        number = f"order-{len(world.log)}"
        world.log.append(number)
        return number

    @workflow(name="m6")
    async def flow() -> str:
        return await create()

    return scenario(flow, world, lambda run: len(world.log) == 1)


@mistake
def charged_before_the_approval() -> Scenario:
    world = World()
    charge, deliver = once(world, "charge"), once(world, "deliver")

    @workflow(name="m7")
    async def flow() -> str:
        await charge()
        if not await approval("deliver?", arguments={"order": 1}, timeout="1h"):
            return "refused"
        await deliver()
        return "delivered"

    return scenario(flow, world, lambda run: world.count["charge"] == world.count["deliver"])


@mistake
def silence_taken_for_consent() -> Scenario:
    world = World()
    pay = once(world, "pay")

    @workflow(name="m8")
    async def flow() -> str:
        await wait_for_event("agreed", timeout="1h")
        return await pay()

    return scenario(flow, world, lambda run: not world.count["pay"] or "agreed" in run.events[:1])


@mistake
def tries_of_ones_own_around_a_step() -> Scenario:
    world = World()
    charge = once(world, "charge", retries=0)

    @workflow(name="m9")
    async def flow() -> str:
        for _ in range(3):
            try:
                return await charge()
            except ConnectionError:
                continue
        return "given up"

    return scenario(flow, world, lambda run: world.count["charge"] <= 1)


@mistake
def nothing_undone_when_the_second_step_fails() -> Scenario:
    world = World()
    reserve, charge = once(world, "reserve"), once(world, "charge", retries=0)

    @workflow(name="m10")
    async def flow() -> str:
        await reserve()
        return await charge()

    return scenario(
        flow, world, lambda run: run.status == "completed" or not world.count["reserve"]
    )


@mistake
def undone_twice() -> Scenario:
    world = World()
    reserve, charge = once(world, "reserve"), once(world, "charge", retries=0)
    release = once(world, "release")

    @workflow(name="m11")
    async def flow() -> str:
        failed = False
        try:
            await reserve()
            await charge()
        except ConnectionError:
            failed = True
            await release()
        finally:
            if failed:
                await release()
        return "done"

    return scenario(flow, world, lambda run: world.count["release"] <= 1)


@mistake
def a_model_that_is_overloaded_leaves_the_lock() -> Scenario:
    world = World()
    lock, unlock = once(world, "lock"), once(world, "unlock")

    @step(name="ask", retries=0)
    async def ask() -> str:
        return (await generate_text("any/model", prompt="hello")).text

    @workflow(name="m12")
    async def flow() -> str:
        await lock()
        text = await ask()
        await unlock()
        return text

    return scenario(flow, world, lambda run: world.count["lock"] == world.count["unlock"])


@mistake
def a_cut_stream_after_the_charge() -> Scenario:
    world = World()
    charge, write = once(world, "charge"), once(world, "write")

    @step(name="draft", retries=0)
    async def draft() -> str:
        return (await generate_text("any/model", prompt="hello")).text

    @workflow(name="m13")
    async def flow() -> str:
        await charge()
        await draft()
        return await write()

    return scenario(flow, world, lambda run: world.count["charge"] == world.count["write"])


@mistake
def one_of_two_at_once_fails() -> Scenario:
    world = World()
    left, right = once(world, "left", retries=0), once(world, "right", retries=0)

    @workflow(name="m14")
    async def flow() -> str:
        await asyncio.gather(left(), right())
        return "both"

    return scenario(
        flow, world, lambda run: run.status == "completed" or not any(world.count.values())
    )


@mistake
def an_event_that_comes_twice_is_counted_twice() -> Scenario:
    world = World()

    @step(name="book")
    async def book(kind: str, event: str) -> None:
        world.log.append(f"{kind} {event}")

    @workflow(name="m15")
    async def flow() -> None:
        first = await wait_for_event("paid", timeout="1h")
        if first:
            await book("first", first.id)
        await sleep(10)
        second = await wait_for_event("paid", timeout="2s")
        if second:
            await book("second", second.id)

    def check(run: SimulatedRun) -> bool:
        # The calm world answers each wait: two bookings. Three events are one too many.
        return run.events.count("paid") <= 2 or len(set(world.log)) <= 1

    return scenario(flow, world, check, events={"paid": {}})


@mistake
def read_and_written_in_two_steps() -> Scenario:
    world = World()

    @step(name="add")
    async def add() -> int:
        world.state["balance"] = world.state.get("balance", 0) + 5
        return world.state["balance"]

    @workflow(name="m16")
    async def flow() -> int:
        return await add()

    return scenario(flow, world, lambda run: world.state.get("balance", 0) in (0, 5))


@mistake
def an_id_of_its_own_for_each_attempt() -> Scenario:
    world = World()

    @step(name="ship")
    async def ship() -> str:
        number = str(uuid.uuid4())
        world.keys.add(number)
        return number

    @workflow(name="m17")
    async def flow() -> str:
        return await ship()

    return scenario(flow, world, lambda run: len(world.keys) <= 1)


@mistake
def a_key_with_the_time_in_it() -> Scenario:
    world = World()

    @step(name="pay")
    async def pay() -> None:
        world.keys.add(f"pay-{asyncio.get_running_loop().time()}")

    @workflow(name="m18")
    async def flow() -> None:
        await pay()

    return scenario(flow, world, lambda run: len(world.keys) <= 1)


@mistake
def a_line_for_each_attempt() -> Scenario:
    world = World()

    @step(name="append")
    def append() -> int:
        world.log.append("line")
        return len(world.log)

    @workflow(name="m19")
    async def flow() -> int:
        return await append()

    return scenario(flow, world, lambda run: len(world.log) <= 1)


@mistake
def a_lock_that_a_failure_keeps() -> Scenario:
    world = World()
    lock, work, unlock = (
        once(world, "lock"), once(world, "work", retries=0), once(world, "unlock"),
    )  # fmt: skip

    @workflow(name="m20")
    async def flow() -> None:
        await lock()
        await work()
        await unlock()

    return scenario(flow, world, lambda run: world.count["lock"] == world.count["unlock"])


@mistake
def a_time_limit_that_is_taken_for_not_done() -> Scenario:
    world = World()

    @step(name="transfer", retries=0)
    async def transfer() -> str:
        key = step_context().idempotency_key
        world.keys.add(key)
        return "sent"

    @workflow(name="m21")
    async def flow() -> str:
        try:
            async with asyncio.timeout(20):
                return await transfer()
        except (TimeoutError, ConnectionError):
            return await transfer()

    return scenario(flow, world, lambda run: len(world.keys) <= 1)


@mistake
def an_item_popped_and_lost() -> Scenario:
    world = World()

    @step(name="pop")
    async def pop() -> int:
        left = world.state.setdefault("queue", [1, 2])
        return left.pop(0) if left else 0

    @workflow(name="m22")
    async def flow() -> int:
        return await pop()

    return scenario(flow, world, lambda run: len(world.state.get("queue", [0])) == 1)


@mistake
def numbers_with_gaps() -> Scenario:
    world = World()
    numbers = itertools.count(1)

    @step(name="number")
    async def number() -> int:
        return next(numbers)

    @workflow(name="m23")
    async def flow() -> int:
        return await number()

    def check(run: SimulatedRun) -> bool:
        return len({effect.result for effect in run.acted("number")}) <= 1

    return scenario(flow, world, check)


@mistake
def a_late_decision_that_is_not_waited_for() -> Scenario:
    world = World()
    refund = once(world, "refund")

    @workflow(name="m24")
    async def flow() -> str:
        decision = await approval("refund?", arguments={"order": 1}, timeout="1h")
        if decision is not None:
            await refund()
        return "done"

    def check(run: SimulatedRun) -> bool:
        return not world.count["refund"] or bool(run.events)

    return scenario(flow, world, check)


@mistake
def a_confirmation_before_the_charge() -> Scenario:
    world = World()
    confirm, charge = once(world, "confirm"), once(world, "charge", retries=0)

    @workflow(name="m25")
    async def flow() -> str:
        await confirm()
        return await charge()

    return scenario(
        flow, world, lambda run: not world.count["confirm"] or run.status == "completed"
    )


@mistake
def a_body_that_counts_in_a_global() -> Scenario:
    world = World()
    seen = itertools.count()

    @step(name="note")
    async def note(number: int) -> int:
        return number

    @workflow(name="m26")
    async def flow() -> int:
        first = await note(next(seen))
        await sleep(60)
        return first

    return scenario(flow, world, lambda run: True)


@mistake
def a_body_that_rolls_dice() -> Scenario:
    world = World()

    @step(name="note")
    async def note(number: float) -> float:
        return number

    @workflow(name="m27")
    async def flow() -> float:
        first = await note(random.random())
        await sleep(60)
        return first

    return scenario(flow, world, lambda run: True)


@mistake
def a_body_that_looks_at_the_clock() -> Scenario:
    world = World()

    @step(name="note")
    async def note(number: int) -> int:
        return number

    @workflow(name="m28")
    async def flow() -> int:
        first = await note(time.perf_counter_ns())
        await sleep(60)
        return first

    return scenario(flow, world, lambda run: True)


@mistake
def a_child_that_acts_twice() -> Scenario:
    world = World()
    pay = acting(world, "pay")

    @workflow(name="m29_child")
    async def child() -> str:
        return await pay()

    @workflow(name="m29")
    async def flow() -> str:
        return await child()

    return scenario(flow, world, lambda run: world.count["pay"] <= 1)


@mistake
def a_worker_that_wakes_up_overwrites_what_came_since() -> Scenario:
    world = World()

    def setting(value: str) -> Any:
        @step(name=f"set {value}")
        async def act() -> str:
            await asyncio.sleep(1)
            world.state["status"] = value
            return value

        return act

    paid, shipped = setting("paid"), setting("shipped")

    @workflow(name="m30")
    async def flow() -> None:
        await paid()
        await shipped()

    return scenario(
        flow,
        world,
        lambda run: run.status != "completed" or world.state.get("status") == "shipped",
    )
