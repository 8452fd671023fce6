"""Events that start and cancel runs: dealt with once, in the order they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.records.subscriptions import Reaction
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
    """A workflow listens from one message to the next."""

    async def test_what_was_sent_before_it_listened_does_not_count(self, store: Store) -> None:
        await send(store, "made", b'{"kind":"a"}', "e0")
        made = await store.subscribe("flow", STARTS)
        assert await store.subscriptions() == [made]
        assert await told(store) == []
        await send(store, "made", b'{"kind":"a"}', "e1")
        await send(store, "made", b'{"kind":"b"}', "e2")
        await send(store, "other", b'{"kind":"a"}', "e3")
        [news] = await told(store)
        assert [each.event_id for each in news.messages] == ["e1"]
        assert await store.news(["none"], 10) == []

    async def test_one_that_goes_on_listening_keeps_its_place(self, store: Store) -> None:
        await store.subscribe("flow", STARTS)
        await send(store, "made", b'{"kind":"a"}', "e1")
        await send(store, "late", b"{}", "e2")
        await store.subscribe("flow", {**STARTS, "late": Reaction("cancel", {}, "id")})
        await send(store, "late", b"{}", "e3")
        [news] = await told(store)
        assert [each.event_id for each in news.messages] == ["e1", "e3"]
        await store.subscribe("flow", {})
        assert (await store.subscriptions(), await told(store)) == ([], [])

    async def test_of_many_who_listen_one_deals_with_a_message(self, parts: StoreParts) -> None:
        async with opened(parts, "wkr_1") as one, opened(parts, "wkr_2") as two:
            await one.subscribe("flow", STARTS)
            await send(one, "made", b'{"kind":"a"}', "e1")
            [news] = await told(two)
            tries = [
                store.deal(Dealt(news.subscription, news.until, [new_run(f"run_{n}")], 2.0))
                for n, store in enumerate([one, two] * 3)
            ]
            assert sorted(await asyncio.gather(*tries)) == [False] * 5 + [True]
            assert len((await one.list_runs(RunFilter(), 10, None)).runs) == 1
            assert await told(one) == []

    async def test_effects_come_in_order_and_find_runs_by_key(self, store: Store) -> None:
        await store.subscribe("flow", STARTS)
        await send(store, "made", b'{"kind":"a"}', "e1")
        [news] = await told(store)
        first, same = new_run("run_1", key="k"), new_run("run_2", key="k")
        effects = [CancelKey("k"), first, same, CancelKey("none")]
        assert await store.deal(Dealt(news.subscription, news.until, effects, 2.0))
        assert (await found(store)).status == "pending"
        assert await store.get("run_2") is None
        await send(store, "made", b'{"kind":"a"}', "e2")
        [news] = await told(store)
        assert await store.deal(Dealt(news.subscription, news.until, [CancelKey("k")], 3.0))
        run = await found(store)
        assert run.status == "cancelled" or run.due_at is not None

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
        assert await store.deal(Dealt(news.subscription, news.until, [], 1.0))
        [news] = await store.news(["flow"], 100)
        assert [each.event_id for each in news.messages] == [f"e{n}" for n in range(5, 12)]
