"""Who has which run: creation by key, claims, leases, fences, limits and deadlines."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.errors import KeyUsed, LeaseLost
from holdfast.records import (
    CANCEL_REQUESTED,
    RUN_COMPLETED,
    RUN_STUCK,
    STEP_COMPLETED,
    STEP_STARTED,
)
from holdfast.store.base import Claim, Store
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    FAR,
    Conformance,
    append,
    claimed,
    event,
    found,
    new_run,
    opened,
    status_of,
    types_of,
    wait_for,
    worker,
)

DAMAGED = {"error": {"type": "CorruptEvent", "message": "damaged"}}


class OwnershipConformance(Conformance):
    """A run has one owner at a time, and none is forgotten."""

    # --- creation ---

    async def test_a_key_creates_one_run(self, store: Store, parts: StoreParts) -> None:
        async with opened(parts, "wkr_2") as other:
            created = await asyncio.gather(
                *(
                    (store, other)[n % 2].create(new_run(f"run_{n}", key="k"), None)
                    for n in range(10)
                )
            )
        assert len({c.run.id for c in created}) == 1
        assert [c.existed for c in created].count(False) == 1
        other_flow = await store.create(new_run("run_x", workflow="other", key="k"), None)
        assert not other_flow.existed

    async def test_the_key_of_an_ended_run_is_used_as_its_policy_says(self, store: Store) -> None:
        claim = await claimed(store, key="k")
        again = new_run("run_2", key="k", key_policy="start_new")
        assert (await store.create(again, None)).run.id == "run_1", "it has not ended"
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert (await store.create(new_run("run_2", key="k"), None)).run.id == "run_1"
        with pytest.raises(KeyUsed):
            await store.create(new_run("run_2", key="k", key_policy="refuse"), None)
        assert (await store.create(again, None)).run.id == "run_2"
        assert (await store.create(new_run("run_3", key="k"), None)).run.id == "run_2"

    async def test_the_same_run_created_again_is_the_same(self, store: Store) -> None:
        await store.create(new_run(), None)
        again = await store.create(new_run(), worker())
        assert (again.existed, again.claim) == (True, None)
        assert len(await store.load("run_1")) == 1

    async def test_a_run_that_is_not_due_is_not_claimed_with_its_creation(
        self, store: Store
    ) -> None:
        created = await store.create(new_run(due_at=FAR), worker())
        assert created.claim is None
        assert await status_of(store) == "pending"

    # --- claims ---

    async def test_only_due_runs_of_known_workflows_are_claimed(self, store: Store) -> None:
        await store.create(new_run("run_due"), None)
        await store.create(new_run("run_later", due_at=FAR), None)
        await store.create(new_run("run_other", workflow="other"), None)
        claims = await store.claim(worker(), ["flow"], 10, [])
        assert [c.run.id for c in claims] == ["run_due"]
        assert await store.next_due("wkr_1", ["flow"]) == FAR
        assert await store.next_due("wkr_1", ["nothing"]) is None
        assert not await store.claim(worker(), ["flow"], 10, [])
        run = await found(store, "run_due")
        assert (run.status, run.owner, run.due_at) == ("running", "wkr_1", None)

    async def test_a_claim_takes_so_many_of_those_that_are_due_first(self, store: Store) -> None:
        for number in range(5):
            await store.create(new_run(f"run_{number}", due_at=9.0 - number), None)
        claims = await store.claim(worker(), ["flow"], 2, [])
        assert [c.run.id for c in claims] == ["run_4", "run_3"]

    async def test_a_worker_of_one_version_takes_no_runs_of_another(self, store: Store) -> None:
        for number, version in enumerate(("one", "two", "one")):
            await store.create(new_run(f"run_{number}", version=version), None)
        assert await store.next_due("wkr_1", ["flow"], {"flow": "three"}) is None
        claims = await store.claim(worker(), ["flow"], 10, [], {"flow": "one"})
        assert [claim.run.id for claim in claims] == ["run_0", "run_2"]
        assert await store.next_due("wkr_1", ["flow"], {"flow": "one"}) is None
        [left] = await store.claim(worker("wkr_2"), ["flow"], 10, [])
        assert left.run.version == "two"

    async def test_of_those_who_claim_at_once_each_gets_others(
        self, store: Store, parts: StoreParts
    ) -> None:
        for number in range(40):
            await store.create(new_run(f"run_{number:02}"), None)
        async with opened(parts, "wkr_2") as other:
            sides = [(store, "wkr_1"), (other, "wkr_2")]
            found = await asyncio.gather(
                *(side.claim(worker(name), ["flow"], 5, []) for side, name in sides * 4)
            )
            ids = [claim.run.id for claims in found for claim in claims]
            assert len(ids) == len(set(ids)) == 40
            owners = {r.id: r.runs for r in await store.workers()}
            assert owners == {"wkr_1": 20, "wkr_2": 20}

    async def test_runs_of_a_lost_worker_are_free_and_counted_against_them(
        self, store: Store
    ) -> None:
        await claimed(store)
        claims: list[Claim] = []
        for crashes in (1, 2, 3):
            claims = await store.claim(
                worker(f"wkr_{crashes + 1}"), ["flow"], 10, [f"wkr_{crashes}"]
            )
            assert [c.crashes for c in claims] == [crashes]
        await append(
            store,
            claims[0],
            event(2, STEP_STARTED, "0/1", name="s"),
            event(3, STEP_COMPLETED, "0/1", b"1"),
        )
        claims = await store.claim(worker("wkr_9"), ["flow"], 10, ["wkr_4"])
        assert [c.crashes for c in claims] == [1], "progress wipes the slate"

    async def test_a_worker_has_one_suspect_at_a_time(self, store: Store) -> None:
        for name in ("run_1", "run_2"):
            await claimed(store, name=name)
        for crashes in (1, 2):
            lost = f"wkr_{crashes}"
            claims: list[Claim] = []
            while len(claims) < 2:  # a suspect is handed out by itself
                heir = worker(f"wkr_{crashes + 1}")
                claims += await store.claim(heir, ["flow"], 10, [lost])
                if crashes == 2:
                    break
        assert [c.crashes for c in claims] == [2]
        assert not await store.claim(worker("wkr_3"), ["flow"], 10, [])
        assert await store.next_due("wkr_3", ["flow"]) is None
        assert len(await store.claim(worker("wkr_4"), ["flow"], 10, [])) == 1

    # --- leases ---

    async def test_an_expired_lease_shows_its_worker_as_lost(self, store: Store) -> None:
        await store.renew(worker("wkr_old", lease=-1.0))
        await store.renew(worker("wkr_new"))
        assert await store.lost_workers("wkr_1") == ["wkr_old"]
        await store.renew(worker("wkr_old"))
        assert await store.lost_workers("wkr_1") == []

    async def test_a_lease_is_shown_with_its_end(self, store: Store) -> None:
        await store.renew(worker(lease=500.0))
        [shown] = await store.workers()
        assert (shown.id, shown.pid, shown.host) == ("wkr_1", 1, "here")
        assert abs(shown.expires_at - time.time() - 500.0) < 100

    async def test_a_lease_can_be_renewed_from_another_thread(self, store: Store) -> None:
        await store.renew(worker(lease=-1.0))
        await asyncio.to_thread(store.renew_apart, worker())
        assert await store.lost_workers("wkr_2") == []

    async def test_workers_are_listed_with_what_they_hold_and_retire(self, store: Store) -> None:
        await claimed(store)
        assert [(w.id, w.runs) for w in await store.workers()] == [("wkr_1", 1)]
        await store.retire("wkr_1")
        assert not await store.workers()
        claims = await store.claim(worker("wkr_2"), ["flow"], 10, [])
        assert [c.crashes for c in claims] == [0], "it went by its own will"

    async def test_a_released_run_is_due_at_its_time_or_when_mail_comes(self, store: Store) -> None:
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "0/1", match={"n": 1}))
        assert await store.release("run_1", claim.fence, FAR)
        assert await status_of(store) == "waiting"
        assert not await store.claim(worker(), ["flow"], 10, [])
        await store.send("go", b'{"n": 2}', "evt_1", None, 2.0)
        assert not await store.claim(worker(), ["flow"], 10, [])
        await store.send("go", b'{"n": 1}', "evt_2", None, 2.0)
        assert len(await store.claim(worker(), ["flow"], 10, [])) == 1
        assert not await store.release("run_1", claim.fence, None), "with an old fence"

    async def test_a_run_with_mail_is_due_at_once_when_it_is_released(self, store: Store) -> None:
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "0/1"))
        await store.send("go", b"{}", "evt_1", None, 2.0)
        assert await store.release("run_1", claim.fence, FAR)
        assert len(await store.claim(worker(), ["flow"], 10, [])) == 1

    async def test_what_was_due_before_the_clock_was_set_back_is_due_still(
        self, store: Store
    ) -> None:
        ahead = time.time() + 3600
        await store.create(new_run(due_at=ahead), None)
        await store.create(new_run("run_2", due_at=FAR), None)
        assert not await store.claim(worker(), ["flow"], 10, [])
        await store.keep_due(ahead + 1)
        assert [c.run.id for c in await store.claim(worker(), ["flow"], 10, [])] == ["run_1"]

    async def test_a_parked_run_is_stuck_and_its_owner_has_lost_it(self, store: Store) -> None:
        claim = await claimed(store)
        await store.park("run_1", claim.fence, DAMAGED, 2.0)
        await self._check_parked(store, claim)
        with pytest.raises(LeaseLost):
            await store.park("run_1", claim.fence, DAMAGED, 3.0)

    async def test_a_run_can_be_parked_from_another_thread(self, store: Store) -> None:
        claim = await claimed(store)
        await asyncio.to_thread(store.park_apart, "run_1", claim.fence, DAMAGED, 2.0)
        await self._check_parked(store, claim)

    async def _check_parked(self, store: Store, claim: Claim) -> None:
        run = await found(store)
        assert (run.status, run.error, run.owner) == ("stuck", "CorruptEvent: damaged", None)
        assert (await types_of(store))[-1] == RUN_STUCK
        with pytest.raises(LeaseLost):
            await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))

    # --- limits ---

    async def test_a_full_lane_queues_and_an_end_lets_the_next_lane_in(self, store: Store) -> None:
        fields: dict[str, Any] = {"run_limit": 2, "lane": "a", "lane_limit": 1}
        claim = await claimed(store, **fields)
        for name in ("run_2", "run_3"):
            await store.create(new_run(name, **fields), None)
        await store.create(new_run("run_4", **{**fields, "lane": "b"}), None)
        await store.create(new_run("run_5", **{**fields, "lane": "c"}), None)
        names = [f"run_{n}" for n in range(2, 6)]
        assert [await status_of(store, n) for n in names] == [
            "queued", "queued", "pending", "queued",
        ]  # fmt: skip
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert [await status_of(store, n) for n in names] == [
            "queued", "queued", "pending", "pending",
        ]  # fmt: skip

    async def test_a_limit_holds_for_runs_that_two_processes_start_at_once(
        self, store: Store, parts: StoreParts
    ) -> None:
        async with opened(parts, "wkr_2") as other:
            await asyncio.gather(
                *(
                    (store, other)[n % 2].create(new_run(f"run_{n}", run_limit=3), None)
                    for n in range(20)
                )
            )
        statuses = [await status_of(store, f"run_{n}") for n in range(20)]
        assert (statuses.count("pending"), statuses.count("queued")) == (3, 17)

    async def test_a_delayed_run_takes_its_place_when_it_is_due(self, store: Store) -> None:
        soon = time.time() + 0.05
        await store.create(new_run("run_late", due_at=soon, run_limit=1), None)
        claim = await claimed(store, run_limit=1)
        await asyncio.sleep(0.1)  # until it is due
        assert not await store.claim(worker(), ["flow"], 10, [])
        assert await status_of(store, "run_late") == "queued"
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        claims = await store.claim(worker(), ["flow"], 10, [])
        assert [c.run.id for c in claims] == ["run_late"]

    # --- deadlines ---

    async def test_a_run_whose_deadline_has_passed_is_handed_out_for_its_end(
        self, store: Store
    ) -> None:
        claim = await claimed(store, timeout=5.0)
        run = await found(store)
        assert (run.timeout, run.deadline) == (5.0, 6.0)
        assert await store.release("run_1", claim.fence, 6.0)
        [taken] = await store.claim(worker(), ["flow"], 10, [])
        last = await store.last_event("run_1")
        assert (last.type, last.facts["deadline"]) == (CANCEL_REQUESTED, 6.0)
        assert taken.fence > claim.fence

    @pytest.mark.parametrize("how", ["queued", "paused"])
    async def test_a_queued_or_paused_run_is_found_by_its_deadline(
        self, store: Store, how: str
    ) -> None:
        await claimed(store, name="run_0", run_limit=1)
        timeout: dict[str, Any] = {"timeout": 10.0, "run_limit": 1}
        if how == "queued":
            await store.create(new_run(**timeout), None)
        else:
            await store.create(new_run(due_at=FAR, **timeout), None)
            await store.request("run_1", "pause", 2.0)
        assert await status_of(store) == how
        deadline = (await found(store)).deadline
        assert deadline is not None
        assert await store.next_due("wkr_1", ["flow"]) == deadline
        claims = await store.claim(worker(), ["flow"], 10, [])
        # One that began in the past is over; the other's time has not come.
        assert [c.run.id for c in claims] == (["run_1"] if how == "queued" else [])
