"""Journals: appended in order by their owner, read back as they were, in one log of all runs."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.errors import LeaseLost, NotFound, StoreError
from holdfast.records import (
    ATTRIBUTES_SET,
    RUN_FAILED,
    STEP_COMPLETED,
    STEP_PUBLISHED,
    STEP_STARTED,
    STREAM_WRITTEN,
    VALUE_PUBLISHED,
)
from holdfast.store.base import Change, Claim, Store
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    Conformance,
    append,
    claimed,
    event,
    found,
    new_run,
    opened,
    until,
    worker,
)


class JournalConformance(Conformance):
    """Appending, reading, and what follows from events."""

    async def test_what_is_appended_is_read_back_as_it_was(self, store: Store) -> None:
        claim = await claimed(store)
        large = b'"' + b"x" * 100_000 + b'"'
        events = [
            event(2, STEP_STARTED, "0/1", b'{"a":1}', name="s"),
            event(3, STEP_COMPLETED, "0/1", large),
            event(4, STEP_STARTED, "0/2", b"", name='é\u2028"\\ \ud800'),
            event(5, STEP_COMPLETED, "0/2", b'"\\u0000\\ud800"'),
        ]
        await append(store, claim, *events)
        journal = await store.load("run_1")
        assert [e._replace(log=0) for e in journal[1:]] == events
        assert [e.log for e in journal] == sorted({e.log for e in journal})
        assert [e.seq for e in await store.events("run_1", 2, 2)] == [3, 4]
        assert [e.seq for e in await store.log(journal[1].log, 2)] == [3, 4]
        assert await store.last_event("run_1") == journal[-1]

    async def test_the_first_event_says_how_the_run_was_created(self, store: Store) -> None:
        new = new_run(key="k", parent_id="run_0", attributes={"a": 1}, timeout=60.0, input=b"[1]")
        await store.create(new, None)
        [first] = await store.load("run_1")
        assert first._replace(log=0) == new.first_event()
        assert (first.value, first.facts["deadline"]) == (b"[1]", 61.0)

    async def test_a_run_that_is_not_there_has_no_last_event(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.last_event("run_0")
        assert await store.get("run_0") is None
        assert await store.events("run_0", 0, 10) == []

    async def test_the_log_can_be_read_for_one_run_and_its_end_is_known(self, store: Store) -> None:
        assert await store.log_end() == 0
        one, other = await claimed(store), await claimed(store, name="run_2")
        await append(store, one, event(2, STEP_STARTED, "0/1", name="s"))
        await append(store, other, event(2, STEP_STARTED, "0/1", of="run_2", name="s"))
        await append(store, one, event(3, STEP_COMPLETED, "0/1", b"1"))
        whole = await store.log(0, 100)
        mine = [e for e in whole if e.run_id == "run_1"]
        assert await store.log_end() == whole[-1].log
        assert await store.log(0, 100, "run_1") == mine
        assert await store.log(mine[0].log, 1, "run_1") == [mine[1]]
        assert await store.log(mine[-1].log, 100, "run_1") == []

    async def test_a_reader_that_follows_the_log_misses_nothing_that_two_processes_write(
        self, store: Store, parts: StoreParts
    ) -> None:
        runs, each = 8, 25
        async with opened(parts, "wkr_2") as other:
            claims = [
                (side, await claimed(side, name=f"run_{number}"))
                for number in range(runs)
                for side in [(store, other)[number % 2]]
            ]

            async def write(side: Store, claim: Claim) -> None:
                for seq in range(2, 2 + each):
                    name = claim.run.id
                    await append(side, claim, event(seq, STEP_STARTED, str(seq), of=name, name="s"))

            writing = asyncio.gather(*(write(side, claim) for side, claim in claims))
            seen: list[tuple[str, int]] = []
            place = 0
            while len(seen) < runs * (each + 1):
                ended = writing.done()
                more = await store.log(place, 50)
                seen += [(e.run_id, e.seq) for e in more]
                place = more[-1].log if more else place
                assert more or not ended, f"{len(seen)} events seen, and no more to come"
            await writing
        assert len(seen) == len(set(seen)) == runs * (each + 1)

    async def test_an_append_with_an_old_fence_is_refused_whole(
        self, store: Store, parts: StoreParts
    ) -> None:
        claim = await claimed(store)
        async with opened(parts, "wkr_2") as other:
            taken = await other.claim(worker("wkr_2"), ["flow"], 10, ["wkr_1"])
            assert [c.run.id for c in taken] == ["run_1"]
            assert taken[0].fence > claim.fence
            with pytest.raises(LeaseLost):
                await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
            await append(other, taken[0], event(2, STEP_STARTED, "0/1", name="s"))
            assert len(await store.load("run_1")) == 2

    async def test_an_append_that_leaves_a_gap_or_repeats_is_refused(self, store: Store) -> None:
        claim = await claimed(store)
        for seq in (1, 3):
            with pytest.raises(StoreError):
                await append(store, claim, event(seq, STEP_STARTED, "0/1", name="s"))
        assert len(await store.load("run_1")) == 1

    async def test_a_refused_append_does_not_take_its_neighbours_with_it(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        good = append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
        bad = append(store, Claim(claim.run, 99, 0), event(2, STEP_STARTED, "0/1", name="s"))
        results = await asyncio.gather(good, bad, return_exceptions=True)
        assert results[0] is None
        assert isinstance(results[1], LeaseLost)

    async def test_appends_that_are_sent_at_once_keep_their_order(self, store: Store) -> None:
        claim = await claimed(store)
        sent = [
            append(store, claim, event(seq, STEP_STARTED, str(seq), name="s"))
            for seq in range(2, 50)
        ]
        await asyncio.gather(*sent)
        assert [e.seq for e in await store.load("run_1")] == list(range(1, 50))

    async def test_the_end_of_a_run_is_told_and_shown(self, store: Store) -> None:
        changes: list[Change | None] = []
        store.on_change = changes.append
        claim = await claimed(store)
        error = {"type": "ValueError", "message": "bad", "traceback": ""}
        await append(store, claim, event(2, RUN_FAILED, error=error, caused_by=[]))
        told = [c for c in changes if c is not None and c.ended]
        assert [list(c.ended) for c in told] == [["run_1"]]
        run = await found(store)
        assert (run.status, run.error, run.finished_at) == ("failed", "ValueError: bad", 2.0)
        assert (run.owner, run.due_at) == (None, None)
        assert (await store.last_event("run_1")).type == RUN_FAILED

    async def test_a_store_is_told_that_another_has_written(
        self, store: Store, parts: StoreParts
    ) -> None:
        told: list[Change | None] = []
        store.on_change = told.append
        async with opened(parts, "wkr_2") as other:
            await other.create(new_run("run_2"), None)

            async def is_told() -> bool:
                return None in told

            await until(is_told)

    async def test_streams_are_numbered_and_fenced(self, store: Store) -> None:
        claim = await claimed(store)
        for text in (b'"a"', b'"b"', b'"c"'):
            await store.write_chunk("run_1", claim.fence, "out", text, 1.0, "0/1", 2)
        chunks = await store.chunks("run_1", "out", 1, 10)
        assert [(c.index, c.data, c.step, c.attempt) for c in chunks] == [
            (1, b'"b"', "0/1", 2),
            (2, b'"c"', "0/1", 2),
        ]
        await append(store, claim, event(2, STREAM_WRITTEN, "0/2", b'"d"', stream="out"))
        assert [c.data for c in await store.chunks("run_1", "out", 3, 10)] == [b'"d"']
        assert await store.chunks("run_1", "other", 0, 10) == []
        with pytest.raises(LeaseLost):
            await store.write_chunk("run_1", claim.fence + 1, "out", b"1", 1.0, "0/1", 1)

    async def test_the_last_value_published_under_a_name_is_shown(self, store: Store) -> None:
        claim = await claimed(store)
        await append(
            store,
            claim,
            event(2, VALUE_PUBLISHED, "0/1", b"1", name="b"),
            event(3, STEP_PUBLISHED, "0/2", b"2", name="a"),
            event(4, VALUE_PUBLISHED, "0/3", b"3", name="b"),
        )
        shown = [(p.name, p.value, p.at) for p in await store.published("run_1")]
        assert shown == [("a", b"2", 3.0), ("b", b"3", 4.0)]

    async def test_attributes_are_set_changed_and_removed(self, store: Store) -> None:
        claim = await claimed(store, attributes={"a": 1, "b": "x"})
        change = json.dumps({"a": {"deep": [True, None]}, "b": None, "é": "half \ud800"}).encode()
        await append(store, claim, event(2, ATTRIBUTES_SET, "0/1", change))
        run = await found(store)
        assert run.attributes == {"a": {"deep": [True, None]}, "é": "half ?"}

    async def test_what_is_kept_for_a_run_is_had_by_its_name_until_the_run_is_deleted(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        large = bytes(range(256)) * 1000
        name = await store.keep_blob("run_1", large)
        assert await store.keep_blob("run_1", large) == name
        assert await store.keep_blob("run_1", b"other") != name
        assert await store.blob("run_1", name) == large
        with pytest.raises(NotFound):
            await store.blob("run_2", name)
        await append(store, claim, event(2, RUN_FAILED, error={"type": "E", "message": "m"}))
        await store.delete("run_1", 3.0)
        await store.purge()
        with pytest.raises(NotFound):
            await store.blob("run_1", name)

    async def test_what_is_written_is_there_when_the_store_is_opened_again(
        self, parts: StoreParts
    ) -> None:
        async with opened(parts, "wkr_1") as store:
            claim = await claimed(store)
            await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
            before = await store.load("run_1")
            async with opened(parts, "wkr_2") as other:
                assert await other.load("run_1") == before
        async with opened(parts, "wkr_3") as again:
            assert await again.load("run_1") == before

    async def test_a_closed_store_refuses(self, parts: StoreParts) -> None:
        store = parts.runs("wkr_1")
        await store.open()
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.get("run_1")
        with pytest.raises(StoreError, match="closed"):
            await store.create(new_run(), None)
