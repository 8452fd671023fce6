"""What is kept: holds, runs whose time is over, and space given back."""

from __future__ import annotations

import pytest

from holdfast.errors import NotFound, Refused
from holdfast.records import RUN_COMPLETED, RUN_FAILED
from holdfast.store.base import Store
from holdfast.store.retention import Hold, Kept
from holdfast.testing.store_conformance.records import Conformance, append, claimed, event, new_run

ENDED = ("completed", "failed")


async def ended(store: Store, name: str, at: int, type: str = RUN_COMPLETED) -> None:
    """A run that has ended at a time."""
    claim = await claimed(store, name=name)
    if type == RUN_FAILED:
        last = event(2, type, of=name, value=b"1", error={"type": "E", "message": "m"})
    else:
        last = event(2, type, of=name, value=b"1")
    await append(store, claim, last._replace(at=float(at)))


class RetentionConformance(Conformance):
    """Nothing goes that somebody needs."""

    async def test_what_ended_long_ago_is_over_and_nothing_else(self, store: Store) -> None:
        await ended(store, "run_1", 10)
        await ended(store, "run_2", 20, RUN_FAILED)
        await ended(store, "run_3", 30)
        await store.create(new_run("run_4"), None)
        await store.create(new_run("run_5", workflow="other"), None)

        async def over(*args: object, **kwargs: object) -> list[str]:
            return await store.over(Kept("flow", *args, **kwargs), 10)  # type: ignore[arg-type]

        assert await over(ENDED, 25.0) == ["run_1", "run_2"]
        assert await over(("completed",), 25.0) == ["run_1"]
        assert await over(ENDED, 1e9) == ["run_1", "run_2", "run_3"]
        assert await over(ENDED) == []
        assert await over(ENDED, newest=1) == ["run_1", "run_2"]
        assert await over(("completed",), 5.0, newest=2) == ["run_1"]
        assert await over(ENDED, newest=3) == []
        assert await store.over(Kept("flow", ENDED, 1e9), 1, "run_1") == ["run_2"]
        assert await store.workflows() == ["flow", "other"]

    async def test_the_child_of_a_run_that_goes_on_is_kept(self, store: Store) -> None:
        await store.create(new_run("run_0", workflow="parent"), None)
        claim = await claimed(store, parent_id="run_0")
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert await store.over(Kept("flow", ENDED, 1e9), 10) == []

    async def test_what_is_held_is_not_over_and_not_deleted(self, store: Store) -> None:
        await ended(store, "run_1", 10)
        held = Hold("run_1", "case 7", "ann", 5.0)
        with pytest.raises(NotFound):
            await store.hold(Hold("run_none", "", "", 1.0))
        await store.hold(held)
        assert await store.holds() == [held]
        assert await store.over(Kept("flow", ENDED, 1e9), 10) == []
        with pytest.raises(Refused):
            await store.delete("run_1", 20.0)
        assert await store.release_hold("run_1")
        assert not await store.release_hold("run_1")
        assert await store.delete("run_1", 20.0) == ["run_1"]
        assert await store.holds() == []
