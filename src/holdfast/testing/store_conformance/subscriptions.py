"""Events that start and cancel runs: dealt with once, in the order they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.records.subscriptions import Reaction, Subscription
from holdfast.store.base import RunFilter, Store
from holdfast.store.parts import StoreParts
from holdfast.store.subscriptions import CancelKey, Dealt, News
from holdfast.testing.store_conformance.records import Conformance, found, new_run, opened

STARTS: Mapping[str, Reaction] = {"made": Reaction("start", {"kind": "a"}, "id")}


async def send(store: Store, name: str, payload: bytes, id: str, run: str | None = None) -> None:
    assert await store.send(name, payload, id, run, 1.0)


async def told(store: Store) -> list[News]:
    return await store.news(["flow"], 10)


class SubscriptionConformance(Conformance):
    """A message is left for the workflows that listen, and dealt with once."""

    async def test_what_was_sent_before_it_listened_does_not_count(self, store: Store) -> None:
        await send(store, "made", b'{"kind":"a"}', "e0")
        await store.subscribe("flow", STARTS)
        assert await store.subscriptions() == [Subscription("flow", STARTS)]
        assert await told(store) == []
        await send(store, "made", b'{"kind":"a"}', "e1")
        await send(store, "made", b'{"kind":"b"}', "e2")
        await send(store, "other", b'{"kind":"a"}', "e3")
        [news] = await told(store)
        assert [each.event_id for each in news.messages] == ["e1"]
        assert await store.news(["none"], 10) == []

    async def test_one_that_goes_on_listening_misses_nothing(self, store: Store) -> None:
        await store.subscribe("flow", STARTS)
        await send(store, "made", b'{"kind":"a"}', "e1")
        await send(store, "late", b"{}", "e2")
        more = {**STARTS, "late": Reaction("cancel", {}, "id")}
        await store.subscribe("flow", more)
        await send(store, "late", b"{}", "e3")
        [news] = await told(store)
        assert [each.event_id for each in news.messages] == ["e1", "e3"]
        assert news.subscription == Subscription("flow", more)
        await store.subscribe("flow", {"late": more["late"]})
        [news] = await told(store)
        assert [each.event_id for each in news.messages] == ["e3"]
        await store.subscribe("flow", {})
        assert (await store.subscriptions(), await told(store)) == ([], [])

    async def test_of_many_who_listen_one_deals_with_a_message(self, parts: StoreParts) -> None:
        async with opened(parts, "wkr_1") as one, opened(parts, "wkr_2") as two:
            await one.subscribe("flow", STARTS)
            for number in range(3):
                await send(one, "made", b'{"kind":"a"}', f"e{number}")
            [news] = await told(two)
            tries = [
                store.deal(
                    Dealt(
                        "flow",
                        [(each.id, new_run(f"run_{n}_{each.id}")) for each in news.messages],
                        2.0,
                    )
                )
                for n, store in enumerate([one, two] * 3)
            ]
            assert sum(await asyncio.gather(*tries)) == 3
            assert len((await one.list_runs(RunFilter(), 10, None)).runs) == 3
            assert await told(one) == []

    async def test_effects_come_in_order_and_find_runs_by_key(self, store: Store) -> None:
        await store.subscribe("flow", STARTS)
        for number in range(5):
            await send(store, "made", b'{"kind":"a"}', f"e{number}")
        [news] = await told(store)
        ids = [each.id for each in news.messages]
        first, same = new_run("run_1", key="k"), new_run("run_2", key="k")
        effects = [CancelKey("k"), first, same, CancelKey("none")]
        done = await store.deal(Dealt("flow", list(zip(ids, effects, strict=False)), 2.0))
        assert done == 4
        assert (await found(store)).status == "pending"
        assert await store.get("run_2") is None
        assert await store.deal(Dealt("flow", [(ids[4], CancelKey("k"))], 3.0)) == 1
        run = await found(store)
        assert run.status == "cancelled" or run.due_at is not None
        assert await store.deal(Dealt("flow", [(ids[4], new_run("run_3"))], 4.0)) == 0

    async def test_messages_for_one_run_start_none(self, store: Store) -> None:
        await store.subscribe("flow", STARTS)
        await store.create(new_run(), None)
        await send(store, "made", b'{"kind":"a"}', "e1", "run_1")
        assert await told(store) == []

    async def test_of_many_messages_the_first_come_first(self, store: Store) -> None:
        await store.subscribe("flow", {"a": Reaction("start"), "b": Reaction("start")})
        for number in range(12):
            await send(store, "ab"[number % 2], b"{}", f"e{number}")
        [news] = await store.news(["flow"], 5)
        assert [each.event_id for each in news.messages] == [f"e{n}" for n in range(5)]
