"""Flow control: how many runs begin, in which order, and starts that become one run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast.errors import TooManyRequests
from holdfast.records import RUN_COMPLETED
from holdfast.records.flow import Gather, Pace, QueuePlace, Rate, StartRate
from holdfast.records.subscriptions import Reaction
from holdfast.store.base import RunFilter, Store
from holdfast.store.parts import StoreParts
from holdfast.store.subscriptions import Dealt
from holdfast.testing.store_conformance.records import (
    FAR,
    Conformance,
    append,
    claimed,
    event,
    new_run,
    opened,
    status_of,
    worker,
)

HOUR = 3600.0


async def claims_of(store: Store, number: int = 100) -> list[str]:
    return [claim.run.id for claim in await store.claim(worker(), ["flow"], number, [])]


def batch(name: str, *items: int, size: int = 3) -> Any:
    gather = Gather("list", "k", FAR, size=size, field="items")
    return new_run(name, input=json.dumps({"items": items}).encode(), gather=gather, due_at=FAR)


class PacingConformance(Conformance):
    """The store holds to what goes with a run, over all who start and take runs."""

    async def test_no_more_begin_than_the_rate_says_whoever_takes_them(
        self, store: Store, parts: StoreParts
    ) -> None:
        pace = Pace(all=Rate(5, HOUR))
        async with opened(parts, "wkr_2") as other:
            for n in range(20):
                await (store, other)[n % 2].create(new_run(f"run_{n:02}", pace=pace), worker())
            assert await status_of(store, "run_00") == "queued"
            got = await asyncio.gather(*(claims_of(each, 3) for each in (store, other) * 4))
        assert sorted(name for names in got for name in names) == [f"run_{n:02}" for n in range(5)]
        due = await store.next_due("wkr_1", ["flow"])
        now = store.clock.now()
        assert due is not None
        assert now + HOUR - 600 < due <= now + HOUR
        place = await store.queue_place("run_07")
        assert place is not None
        assert (place.why, place.ahead, place.next_at) == ("rate", 2, due)
        assert await store.queue_place("run_00") is None

    async def test_lanes_with_a_rate_of_their_own_do_not_wait_for_one_another(
        self, store: Store
    ) -> None:
        pace = Pace(lane=Rate(1, HOUR))
        for n, lane in enumerate(["a", "a", "a", "b"]):
            await store.create(new_run(f"run_{n}", pace=pace, lane=lane), None)
        assert await claims_of(store) == ["run_0", "run_3"]
        assert await claims_of(store) == []
        place = await store.queue_place("run_2")
        assert place is not None
        assert (place.lane, place.ahead) == ("a", 1)

    async def test_lanes_take_turns_however_long_their_queues_are(self, store: Store) -> None:
        pace = Pace(all=Rate(4, HOUR))
        for n in range(8):
            await store.create(new_run(f"run_a{n}", pace=pace, lane="a"), None)
        await store.create(new_run("run_b", pace=pace, lane="b"), None)
        await store.create(new_run("run_c", pace=pace, lane="c"), None)
        assert await claims_of(store) == ["run_a0", "run_b", "run_c", "run_a1"]

    async def test_a_place_that_is_free_goes_to_the_lane_served_longest_ago(
        self, store: Store
    ) -> None:
        claim = await claimed(store, run_limit=1, lane="a")
        for name, lane in (("run_2", "a"), ("run_3", "b")):
            await store.create(new_run(name, run_limit=1, lane=lane), None)
        assert await store.queue_place("run_2") == QueuePlace("places", 0, "a")
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert await claims_of(store) == ["run_3"]

    async def test_a_rate_and_a_place_are_both_needed(self, store: Store) -> None:
        limits: dict[str, Any] = {"pace": Pace(all=Rate(2, HOUR)), "run_limit": 1}
        for n in range(3):
            await store.create(new_run(f"run_{n}", **limits), None)
        [first] = await store.claim(worker(), ["flow"], 9, [])
        assert await claims_of(store) == []
        await append(store, first, event(2, RUN_COMPLETED, value=b"1", of="run_0"))
        [second] = await store.claim(worker(), ["flow"], 9, [])
        await append(store, second, event(2, RUN_COMPLETED, value=b"1"))
        assert await claims_of(store) == []
        assert await status_of(store, "run_2") == "queued"

    async def test_a_run_with_priority_comes_first_in_its_lane(self, store: Store) -> None:
        pace = Pace(all=Rate(2, HOUR))
        for n, priority in enumerate([0.0, 0.0, 60.0]):
            await store.create(new_run(f"run_{n}", pace=pace, priority=priority), None)
        assert await claims_of(store) == ["run_2", "run_0"]
        for n, priority in enumerate([0.0, 60.0]):
            await store.create(new_run(f"run_free{n}", priority=priority), None)
        assert await claims_of(store, 1) == ["run_free1"]

    async def test_another_version_is_left_for_others(self, store: Store) -> None:
        await store.create(new_run(pace=Pace(all=Rate(2, HOUR))), None)
        assert await store.claim(worker(), ["flow"], 9, [], {"flow": "other"}) == []
        assert await store.claim(worker(), ["none"], 9, []) == []
        assert await status_of(store, "run_1") == "queued"

    async def test_a_start_too_many_is_refused_and_says_when_to_come_again(
        self, store: Store
    ) -> None:
        rates = [StartRate("", Rate(3, HOUR)), StartRate("=a", Rate(1, HOUR))]
        await store.create(new_run("run_1", start_rates=rates), None)
        with pytest.raises(TooManyRequests) as refused:
            await store.create(new_run("run_2", start_rates=rates), None)
        assert HOUR - 600 < (refused.value.retry_after or 0) <= HOUR
        assert await store.get("run_2") is None
        again = await store.create(new_run("run_1", start_rates=rates), None)
        assert again.existed
        other = [rates[0], StartRate("=b", Rate(9, HOUR))]
        for n in (3, 4):
            await store.create(new_run(f"run_{n}", start_rates=other), None)
        with pytest.raises(TooManyRequests):
            await store.create(new_run("run_5", start_rates=other), None)

    async def test_an_event_too_many_starts_nothing(self, store: Store) -> None:
        await store.subscribe("flow", {"made": Reaction("start")})
        for n in range(3):
            await store.send("made", b"{}", f"e{n}", None, 1.0)
        [news] = await store.news(["flow"], 10)
        rates = [StartRate("", Rate(2, HOUR))]
        effects = [(m.id, new_run(f"run_{m.id}", start_rates=rates)) for m in news.messages]
        assert await store.deal(Dealt("flow", effects, store.clock.now())) == 3
        assert len((await store.list_runs(RunFilter(), 10, None)).runs) == 2

    async def test_starts_are_gathered_until_there_are_enough(self, store: Store) -> None:
        assert not (await store.create(batch("run_1", 1), None)).existed
        assert await claims_of(store) == []
        for _ in range(2):  # the second asks for the very same
            created = await store.create(batch("run_2", 2), None)
            assert (created.existed, created.run.id) == (True, "run_1")
        place = await store.queue_place("run_1")
        assert place == QueuePlace("gathering", 0, None, FAR, 2)
        await store.create(batch("run_3", *([7] * 20_000)), None)  # a large one, kept elsewhere
        assert not (await store.create(batch("run_4", 4), None)).existed
        assert await claims_of(store) == ["run_1"]
        [first] = await store.load("run_1")
        assert json.loads(first.value or b"") == {"items": [1, 2, *([7] * 20_000)]}

    async def test_the_last_of_many_starts_counts_and_puts_the_run_off(self, store: Store) -> None:
        def start(name: str, at_most: float | None) -> Any:
            gather = Gather("last", "k", FAR, at_most=at_most)
            return new_run(name, input=name.encode(), gather=gather, due_at=FAR)

        for n in range(4):
            await store.create(start(f"run_{n}", None), None)
        assert await claims_of(store) == []
        await store.create(start("run_9", 1.0), None)  # which is over
        assert await claims_of(store) == ["run_0"]
        [first] = await store.load("run_0")
        assert first.value == b"run_9"
        assert not (await store.create(start("run_10", None), None)).existed

    async def test_a_new_run_can_take_the_place_of_the_one_with_its_key(self, store: Store) -> None:
        fields: dict[str, Any] = {"key": "k", "key_policy": "replace", "run_limit": 1}
        claim = await claimed(store, **fields)
        assert not (await store.create(new_run("run_2", **fields), None)).existed
        assert [mail.kind for mail in await store.mail(worker().id)] == ["cancel"]
        assert await status_of(store, "run_2") == "queued"
        await store.create(new_run("run_3", **fields), None)
        assert await status_of(store, "run_2") == "cancelled"
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert await claims_of(store) == ["run_3"]
