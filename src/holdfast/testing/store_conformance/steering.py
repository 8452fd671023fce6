"""Steering runs from outside: cancel, pause, resume, retry, fork, go on as new, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from holdfast.errors import LeaseLost, NotFound, Refused
from holdfast.records import (
    CANCEL_REQUESTED,
    CHILD_STARTED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_CONTINUED,
    RUN_FAILED,
    RUN_FORKED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_RETRIED,
    RUN_STUCK,
    STEP_COMPLETED,
    STEP_STARTED,
    VALUE_PUBLISHED,
)
from holdfast.store.base import Store
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.messages import CHILD
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

CHANGED = {"type": "NonDeterminismError", "message": "changed"}


class SteeringConformance(Conformance):
    """Nobody goes on with a run before what was asked of it is in its journal."""

    async def test_requests_reach_the_owner_and_change_unowned_runs_at_once(
        self, store: Store
    ) -> None:
        await claimed(store)
        await store.request("run_1", "pause", 2.0)
        assert [m.kind for m in await store.mail("wkr_1")] == ["pause"]
        await store.drop_mail([m.id for m in await store.mail("wkr_1")])
        assert not await store.mail("wkr_1")
        await store.create(new_run("run_2", due_at=FAR), None)
        await store.request("run_2", "pause", 2.0)
        assert await status_of(store, "run_2") == "paused"
        await store.resume("run_2", 3.0)
        run = await found(store, "run_2")
        assert (run.status, run.due_at) == ("pending", FAR), "a delay is not lost by a pause"
        await store.request("run_2", "cancel", 4.0)
        assert await status_of(store, "run_2") == "cancelled"
        await store.request("run_2", "cancel", 5.0)  # it is
        for request in (store.request("run_0", "cancel", 1.0), store.retry("run_0", 1.0)):
            with pytest.raises(NotFound):
                await request
        for request in (store.retry("run_1", 1.0), store.resume("run_2", 1.0)):
            with pytest.raises(Refused):
                await request
        with pytest.raises(Refused):
            await store.request("run_2", "pause", 6.0)

    async def test_a_run_that_has_begun_is_told_of_its_cancellation(self, store: Store) -> None:
        claim = await claimed(store)
        assert await store.release("run_1", claim.fence, FAR)
        await store.request("run_1", "cancel", 2.0)
        await store.request("run_1", "cancel", 3.0)
        assert (await types_of(store))[1:] == [CANCEL_REQUESTED]
        assert len(await store.claim(worker(), ["flow"], 10, [])) == 1
        await store.request("run_1", "terminate", 4.0)
        assert [m.kind for m in await store.mail("wkr_1")] == ["terminate"]

    async def test_a_terminated_run_ends_without_its_body(self, store: Store) -> None:
        claim = await claimed(store)
        assert await store.release("run_1", claim.fence, FAR)
        await store.request("run_1", "terminate", 2.0)
        last = await store.last_event("run_1")
        assert (last.type, last.facts["terminated"]) == (RUN_CANCELLED, True)

    @pytest.mark.parametrize(
        ("request_", "left"), [("cancel", "waiting"), ("resume", "waiting"), (None, "paused")]
    )
    async def test_a_request_that_crosses_a_pause_on_its_way_to_disk_is_carried_out(
        self, store: Store, request_: str | None, left: str
    ) -> None:
        claim = await claimed(store)
        await store.request("run_1", "pause", 2.0)
        if request_ == "cancel":
            await store.request("run_1", "cancel", 2.5)
        elif request_ == "resume":
            await store.resume("run_1", 2.5)
        await append(store, claim, event(2, RUN_PAUSED, held=[]))
        assert await status_of(store) == left
        types = (await types_of(store))[2:]
        assert types == {"cancel": [CANCEL_REQUESTED], "resume": [RUN_RESUMED], None: []}[request_]
        if request_ is not None:
            with pytest.raises(LeaseLost):  # what its owner would still write comes too late
                await append(store, claim, event(3, STEP_STARTED, "0/1", name="s"))

    async def test_a_cancel_of_a_run_that_gets_stuck_meanwhile_ends_it(self, store: Store) -> None:
        claim = await claimed(store)
        await store.request("run_1", "cancel", 2.0)
        await append(store, claim, event(2, RUN_STUCK, error=CHANGED))
        assert await status_of(store) == "cancelled"

    @pytest.mark.parametrize("request_", ["cancel", "pause"])
    async def test_what_was_asked_of_a_dead_worker_comes_before_the_run_is_handed_out(
        self, store: Store, parts: StoreParts, request_: Literal["cancel", "pause"]
    ) -> None:
        await claimed(store)
        await store.request("run_1", request_, 2.0)
        async with opened(parts, "wkr_2") as other:
            taken = await other.claim(worker("wkr_2"), ["flow"], 10, ["wkr_1"])
            journal = await types_of(other)
            if request_ == "cancel":
                assert [c.run.id for c in taken] == ["run_1"]
                assert journal[-1] == CANCEL_REQUESTED
            else:
                assert taken == []
                assert journal[-1] == RUN_PAUSED
                assert await status_of(other) == "paused"

    async def test_a_run_that_ends_at_once_takes_the_children_along_that_it_waits_for(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        await append(
            store,
            claim,
            event(2, CHILD_STARTED, "0/1", name="flow", run={"id": "run_2", **CHILD}),
            wait_for(3, "0/2", "@run/run_3"),
        )
        await store.create(new_run("run_3", parent_id="run_1"), None)  # started, and waited for
        await append(store, claim, event(4, RUN_STUCK, error=CHANGED))
        await store.request("run_1", "cancel", 9.0)
        assert await status_of(store) == "cancelled"
        assert await status_of(store, "run_2") == "cancelled"
        assert await status_of(store, "run_3") == "pending"

    async def test_a_stuck_run_goes_on_when_it_is_resumed(self, store: Store) -> None:
        claim = await claimed(store)
        await append(store, claim, event(2, RUN_STUCK, error=CHANGED))
        with pytest.raises(Refused):
            await store.request("run_1", "pause", 3.0)
        await store.resume("run_1", 3.0)
        assert (await found(store)).error is None
        [taken] = await store.claim(worker(), ["flow"], 10, [])
        assert (await types_of(store))[-1] == RUN_RESUMED
        assert taken.run.id == "run_1"

    async def test_a_failed_run_is_retried_with_what_it_waited_for(self, store: Store) -> None:
        claim = await claimed(store, timeout=10.0)
        error = {"type": "ValueError", "message": "bad"}
        await append(
            store, claim, wait_for(2, "0/1"), event(3, RUN_FAILED, error=error, caused_by=[])
        )
        await store.retry("run_1", 50.0)
        run = await found(store)
        assert (run.status, run.error, run.deadline) == ("pending", None, 60.0)
        [taken] = await store.claim(worker(), ["flow"], 10, [])
        assert (await types_of(store))[3] == RUN_RETRIED
        await store.send("go", b"{}", "evt_1", None, 51.0)
        assert [m.key for m in await store.mail("wkr_1")] == ["0/1"]
        length = len(await store.load("run_1"))
        await append(store, taken, event(length + 1, RUN_COMPLETED, value=b"1"))

    async def test_a_fork_begins_with_the_history_it_is_given(self, store: Store) -> None:
        claim = await claimed(store, run_limit=1)
        await append(
            store,
            claim,
            event(2, STEP_STARTED, "0/1", name="s"),
            event(3, STEP_COMPLETED, "0/1", b"1"),
            event(4, VALUE_PUBLISHED, "0/2", b"2", name="v"),
            wait_for(5, "0/3"),
        )
        history = [e._replace(run_id="run_9", log=0) for e in await store.load("run_1")]
        history.append(event(6, RUN_FORKED, of="run_9"))
        run = await store.fork(new_run("run_9"), "run_1", history)
        assert (run.forked_from, run.status) == ("run_1", "queued"), "the limit is its source's"
        assert [e._replace(log=0) for e in await store.load("run_9")] == [
            e._replace(log=0) for e in history
        ]
        assert [p.value for p in await store.published("run_9")] == [b"2"]
        await append(store, claim, event(6, RUN_COMPLETED, value=b"1"))
        [taken] = await store.claim(worker(), ["flow"], 10, [])
        await store.send("go", b"{}", "evt_1", None, 2.0)
        assert [m.run_id for m in await store.mail("wkr_1")] == [taken.run.id] == ["run_9"]

    async def test_a_run_of_another_store_is_put_in_place_as_it_was(self, store: Store) -> None:
        claim = await claimed(store, key="k", attributes={"a": 1})
        await append(
            store,
            claim,
            event(2, VALUE_PUBLISHED, "0/1", b"2", name="v"),
            event(3, RUN_COMPLETED, value=b"1"),
        )
        was = await store.get("run_1")
        assert was is not None
        history = [e._replace(run_id="run_9", log=0) for e in await store.load("run_1")]
        await store.restore(replace(was, id="run_9"), history)
        run = await store.get("run_9")
        assert run == replace(was, id="run_9", key=None), "the key is this store's own"
        assert [e._replace(log=0) for e in await store.load("run_9")] == history
        assert [p.value for p in await store.published("run_9")] == [b"2"]
        assert await store.claim(worker(), ["flow"], 10, []) == []
        with pytest.raises(Refused):
            await store.restore(replace(was, id="run_9"), history)
        assert await store.delete("run_9", 9.0) == ["run_9"]

    async def test_a_run_that_goes_on_as_a_new_one_hands_everything_on(self, store: Store) -> None:
        claim = await claimed(store, key="k", attributes={"a": 1}, run_limit=1)
        waiting = await claimed(store, name="run_w", workflow="other")
        await append(store, waiting, wait_for(2, "w", "@run/run_1")._replace(run_id="run_w"))
        await store.send("go", b"1", "evt_1", "run_1", 2.0)
        await store.send_update("run_1", "raise", b"1", "u", 2.0)
        await append(
            store,
            claim,
            event(2, VALUE_PUBLISHED, "0/1", b"5", name="v"),
            event(3, RUN_CONTINUED, value=b"[2]", run_id="run_2", version="2"),
        )
        old, new = await found(store), await found(store, "run_2")
        assert (old.status, old.continued_as) == ("continued", "run_2")
        assert (new.continued_from, new.key, new.version) == ("run_1", "k", "2")
        assert (new.attributes, new.status) == ({"a": 1}, "pending")
        assert await store.mail("wkr_1") == [], "who waits for the old one waits for the new"
        [taken] = await store.claim(worker(), ["flow"], 10, [])
        assert (await store.create(new_run("run_3", key="k"), None)).run.id == "run_2"
        await append(store, taken, wait_for(2, "0/1")._replace(run_id="run_2"))
        assert [m.key for m in await store.mail("wkr_1")] == ["0/1"]
        update = await store.update("run_1", "u")
        assert update is not None and (update.run_id, update.status) == ("run_2", "pending")
        assert [p.value for p in await store.published("run_2")] == [b"5"]
        await append(store, taken, event(3, RUN_COMPLETED, value=b"9", of="run_2"))
        [mail] = await store.mail("wkr_1")
        assert mail.ended is not None and (mail.key, mail.ended.value) == ("w", b"9")
        with pytest.raises(Refused):
            await store.request("run_1", "pause", 9.0)  # it means the run that it has come to

    # --- deletion ---

    async def test_a_deleted_run_is_gone_with_the_children_its_body_has_called(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        start = event(2, CHILD_STARTED, "0/1", name="flow", run={"id": "run_2", **CHILD})
        await append(store, claim, start)
        await store.create(new_run("run_3", parent_id="run_1", due_at=FAR), None)
        [child] = await store.claim(worker(), ["flow"], 1, [])
        with pytest.raises(Refused, match="only runs that have ended"):
            await store.delete("run_1", 9.0)
        await append(store, child, event(2, RUN_COMPLETED, value=b"1", of="run_2"))
        with pytest.raises(Refused, match="waits for run_2"):
            await store.delete("run_2", 9.0)
        large = b'"' + b"x" * 100_000 + b'"'
        await append(store, claim, event(3, RUN_COMPLETED, value=large))
        assert sorted(await store.delete("run_1", 9.0)) == ["run_1", "run_2"]
        for name in ("run_1", "run_2"):
            assert await store.get(name) is None
            assert await store.events(name, 0, 10) == []
        assert {e.run_id for e in await store.log(0, 100)} == {"run_3"}
        assert (await found(store, "run_3")).parent_id is None
        with pytest.raises(NotFound):
            await store.delete("run_1", 9.0)

    async def test_what_is_left_of_a_deleted_run_is_purged_by_whoever_opens_the_store(
        self, store: Store
    ) -> None:
        await store.purge()  # of nothing
        claim = await claimed(store)
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        await store.delete("run_1", 9.0)
        await store.purge()
        assert await store.log(0, 10) == []
