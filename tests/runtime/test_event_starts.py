"""Events that start runs, and cancel them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import get_run, list_runs, send_event, sleep, workflow
from holdfast.errors import UsageError
from holdfast.testing import Harness


class Order(BaseModel):
    id: int
    country: str


@workflow(
    name="ship_order",
    on="order.created",
    match={"country": "de"},
    key="id",
    cancel_on="order.cancelled",
)
async def ship_order(order: Order) -> str:
    await sleep("1d")
    return f"shipped {order.id}"


@workflow(name="count_visits", on=["visit", "visit.again"])
async def count_visits(visit: dict[str, Any]) -> int:
    return visit["n"]


async def runs_of(name: str) -> list[Any]:
    return list(reversed((await list_runs(workflow=name, limit=1000)).runs))


async def test_an_event_starts_a_run_with_its_payload_once() -> None:
    async with Harness() as harness:
        await harness.until_blocked()
        assert await send_event("order.created", {"id": 7, "country": "de"}, id="e1")
        assert not await send_event("order.created", {"id": 7, "country": "de"}, id="e1")
        await send_event("order.created", {"id": 8, "country": "fr"})
        await harness.until_blocked()
        [run] = await runs_of("ship_order")
        assert (run.key, run.attributes) == ("7", {"event": "order.created"})
        assert await (await get_run(run.id)).result() == "shipped 7"


async def test_of_events_with_the_same_key_one_run_comes() -> None:
    async with Harness() as harness:
        await harness.until_blocked()
        for _ in range(3):
            await send_event("order.created", {"id": 7, "country": "de"})
        await harness.until_blocked()
        assert len(await runs_of("ship_order")) == 1


async def test_an_event_cancels_the_run_with_its_key_and_no_later_one() -> None:
    async with Harness() as harness:
        await harness.until_blocked()
        await send_event("order.cancelled", {"id": 2})  # before it was made
        for number in (1, 2):
            await send_event("order.created", {"id": number, "country": "de"})
        await send_event("order.cancelled", {"id": 1})
        await harness.until_blocked()
        assert {r.key: r.status for r in await runs_of("ship_order")} == {
            "1": "cancelled",
            "2": "running",
        }


async def test_without_a_key_each_event_starts_a_run_also_over_a_crash() -> None:
    async with Harness() as harness:
        await harness.until_blocked()
        for number in range(250):
            await send_event("visit" if number % 2 else "visit.again", {"n": number})
            if number % 50 == 0:
                await harness.crash()
        await harness.until_blocked()
        runs = await runs_of("count_visits")
        results = {await (await get_run(run.id)).result() for run in runs}
        assert (len(runs), results) == (250, set(range(250)))


async def test_a_payload_that_does_not_fit_is_a_run_that_fails() -> None:
    async with Harness() as harness:
        await harness.until_blocked()
        await send_event("order.created", {"id": "many", "country": "de"})
        await harness.until_blocked()
        [run] = await runs_of("ship_order")
        assert run.status in ("failed", "stuck")
        assert "id" in str(run.error)


async def test_what_was_sent_before_the_workflow_listened_starts_nothing() -> None:
    async with Harness() as harness:
        await send_event("parcel", {"n": 1})

        @workflow(name="parcels", on="parcel")
        async def parcels(parcel: Any) -> None: ...

        await harness.skip("2s")
        await send_event("parcel", {"n": 2})
        await harness.until_blocked()
        assert len(await runs_of("parcels")) == 1

        @workflow(name="parcels")
        async def deaf(parcel: Any) -> None: ...

        await harness.skip("2s")
        await send_event("parcel", {"n": 3})
        await harness.skip("2s")
        assert len(await runs_of("parcels")) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"match": {"a": 1}},
        {"on": "a", "cancel_on": "b"},
        {"on": "a", "key": "id", "cancel_on": "a"},
        {"on": "@run/x"},
        {"on": ""},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    async def flow(payload: Any) -> None: ...

    with pytest.raises(UsageError):
        workflow(**options)(flow)


def test_a_workflow_that_an_event_starts_has_one_parameter() -> None:
    async def flow(one: int, two: int) -> None: ...

    with pytest.raises(UsageError):
        workflow(on="a")(flow)
