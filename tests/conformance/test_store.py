"""What every store has to do, whatever it keeps its records in."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, LeaseLost, NotFound, Refused, StoreError
from holdfast.records import (
    CANCEL_REQUESTED,
    CHILD_STARTED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_STUCK,
    STEP_COMPLETED,
    STEP_STARTED,
    WAIT_CREATED,
    WAIT_RECEIVED,
    Event,
    Worker,
)
from holdfast.store.base import Append, Change, Claim, NewRun, RunFilter, Store
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.memory import MemoryDatabase, MemoryStore
from holdfast.store.sqlite.store import SqliteStore

Open = Callable[[str], Store]


@pytest.fixture(params=["sqlite", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Makes stores that share their records, as processes do."""
    if request.param == "sqlite":
        return lambda name: SqliteStore(tmp_path / "store.db", name)
    database = MemoryDatabase()
    return lambda name: MemoryStore(database, name, SystemClock())


@pytest.fixture
async def store(make: Open) -> AsyncIterator[Store]:
    opened = make("wkr_1")
    await opened.open()
    yield opened
    await opened.close()


def new_run(name: str = "run_1", **fields: Any) -> NewRun:
    values: dict[str, Any] = {
        "workflow": "flow",
        "version": "1",
        "input": b"{}",
        "meta": {"seed": name},
        "created_at": 1.0,
        "due_at": 1.0,
        **fields,
    }
    return NewRun(name, **values)


def worker(name: str = "wkr_1", lease: float = 1e9) -> Worker:
    return Worker(name, 1, "here", 1.0, 0.0, lease_seconds=lease)


async def append(store: Store, claim: Claim, *events: Event) -> None:
    """Append, and wait until it is on disk or refused."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_append: Append, error: HoldfastError | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    store.append(Append(claim.run.id, claim.fence, list(events), done))
    await future


def event(seq: int, type: str, key: str = "", value: bytes | None = None, **facts: Any) -> Event:
    return Event("run_1", seq, type, key, float(seq), json.dumps(facts), value)


async def claimed(store: Store, **fields: Any) -> Claim:
    created = await store.create(new_run(**fields), worker())
    assert created.claim is not None
    return created.claim


async def test_what_is_appended_is_read_back_as_it_was(store: Store):
    claim = await claimed(store)
    large = b'"' + b"x" * 100_000 + b'"'
    events = [
        event(2, STEP_STARTED, "0/1", b'{"a":1}', name="s"),
        event(3, STEP_COMPLETED, "0/1", large),
    ]
    await append(store, claim, *events)
    found = await store.load("run_1")
    assert [e._replace(log=0) for e in found[1:]] == events
    assert [e.log for e in found] == sorted(e.log for e in found)
    assert (await store.events("run_1", 2, 10))[0].seq == 3
    assert [e.seq for e in await store.log(found[1].log, 10)] == [3]


async def test_the_log_can_be_read_for_one_run_and_its_end_is_known(store: Store):
    assert await store.log_end() == 0
    one, other = await claimed(store), await claimed(store, name="run_2")
    await append(store, one, event(2, STEP_STARTED, "0/1", name="s"))
    await append(store, other, event(2, STEP_STARTED, "0/1", name="s")._replace(run_id="run_2"))
    await append(store, one, event(3, STEP_COMPLETED, "0/1", b"1"))
    whole = await store.log(0, 100)
    mine = [e for e in whole if e.run_id == "run_1"]
    assert await store.log_end() == whole[-1].log
    assert await store.log(0, 100, "run_1") == mine
    assert await store.log(mine[0].log, 1, "run_1") == [mine[1]]
    assert await store.log(mine[-1].log, 100, "run_1") == []


async def test_runs_are_found_by_a_text_in_what_is_known_of_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    for number in range(6):
        fields: dict[str, Any] = {"key": f"key_{number}", "attributes": {"team": f"100%_{number}"}}
        await store.create(new_run(f"run_{number}", **fields), None)

    async def found(text: str, cursor: str | None = None) -> tuple[list[str], str | None]:
        page = await store.list_runs(RunFilter(text=text), 2, cursor)
        return [run.id for run in page.runs], page.cursor

    assert await found("KEY_3") == (["run_3"], None)
    assert await found("100%_4") == (["run_4"], None)
    assert await found("team=") == (["run_5", "run_4"], "run_4")
    assert await found("100%4") == ([], None)
    assert await found("r_n_3") == ([], None)
    assert await found("flow") == (["run_5", "run_4"], "run_4")
    monkeypatch.setattr(queries, "SEARCHED", 2)  # then pages may be empty, and not the last
    assert await found("key_1") == ([], "run_4")
    assert await found("key_1", "run_4") == ([], "run_2")
    assert await found("key_1", "run_2") == (["run_1"], "run_0")
    assert await found("key_1", "run_0") == ([], None)


async def test_an_append_with_an_old_fence_is_refused_whole(store: Store, make: Open):
    claim = await claimed(store)
    other = make("wkr_2")
    await other.open()
    try:
        taken = await other.claim(worker("wkr_2"), ["flow"], 10, ["wkr_1"])
        assert [c.run.id for c in taken] == ["run_1"]
        assert taken[0].fence > claim.fence
        with pytest.raises(LeaseLost):
            await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
        await append(other, taken[0], event(2, STEP_STARTED, "0/1", name="s"))
        assert len(await store.load("run_1")) == 2
    finally:
        await other.close()


async def test_an_append_that_leaves_a_gap_or_repeats_is_refused(store: Store):
    claim = await claimed(store)
    for seq in (1, 3):
        with pytest.raises(StoreError):
            await append(store, claim, event(seq, STEP_STARTED, "0/1", name="s"))
    assert len(await store.load("run_1")) == 1


async def test_a_refused_append_does_not_take_its_neighbours_with_it(store: Store):
    claim = await claimed(store)
    good = append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
    bad = append(store, Claim(claim.run, 99, 0), event(2, STEP_STARTED, "0/1", name="s"))
    results = await asyncio.gather(good, bad, return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], LeaseLost)


async def test_a_key_creates_one_run(store: Store):
    created = await asyncio.gather(
        *(store.create(new_run(f"run_{n}", key="k"), None) for n in range(10))
    )
    assert len({c.run.id for c in created}) == 1
    assert [c.existed for c in created].count(False) == 1


async def test_only_due_runs_of_known_workflows_are_claimed(store: Store):
    await store.create(new_run("run_due"), None)
    await store.create(new_run("run_later", due_at=9e11), None)
    await store.create(new_run("run_other", workflow="other"), None)
    claims = await store.claim(worker(), ["flow"], 10, [])
    assert [c.run.id for c in claims] == ["run_due"]
    assert await store.next_due("wkr_1", ["flow"]) == 9e11
    assert await store.next_due("wkr_1", ["nothing"]) is None
    assert not await store.claim(worker(), ["flow"], 10, [])


async def test_runs_of_a_lost_worker_are_free_and_counted_against_them(store: Store):
    await claimed(store)
    for crashes in (1, 2, 3):
        claims = await store.claim(worker(f"wkr_{crashes + 1}"), ["flow"], 10, [f"wkr_{crashes}"])
        assert [c.crashes for c in claims] == [crashes]
    await append(
        store,
        claims[0],
        event(2, STEP_STARTED, "0/1", name="s"),
        event(3, STEP_COMPLETED, "0/1", b"1"),
    )
    claims = await store.claim(worker("wkr_9"), ["flow"], 10, ["wkr_4"])
    assert [c.crashes for c in claims] == [1], "progress wipes the slate"


async def test_an_expired_lease_shows_its_worker_as_lost(store: Store):
    await store.renew(worker("wkr_old", lease=-1.0))
    await store.renew(worker("wkr_new"))
    assert await store.lost_workers("wkr_1") == ["wkr_old"]


async def test_a_released_run_is_due_at_its_time_or_when_mail_comes(store: Store):
    claim = await claimed(store)
    await append(
        store, claim, event(2, WAIT_CREATED, "0/1", name="go", match={"n": 1}, deadline=9e11)
    )
    assert await store.release("run_1", claim.fence, 9e11)
    assert not await store.claim(worker(), ["flow"], 10, [])
    await store.send("go", b'{"n": 2}', "evt_1", None, 2.0)
    assert not await store.claim(worker(), ["flow"], 10, [])
    await store.send("go", b'{"n": 1}', "evt_2", None, 2.0)
    assert len(await store.claim(worker(), ["flow"], 10, [])) == 1
    assert not await store.release("run_1", claim.fence, None), "with an old fence"


async def test_a_message_fits_waits_that_open_later_and_is_taken_once(store: Store):
    claim = await claimed(store)
    assert await store.send("go", b"{}", "evt_1", None, 2.0)
    assert not await store.send("go", b"{}", "evt_1", None, 2.0)
    await append(store, claim, event(2, WAIT_CREATED, "0/1", name="go", match={}, deadline=9e11))
    mail = await store.mail("wkr_1")
    assert [(m.kind, m.key) for m in mail] == [("event", "0/1")]
    assert mail[0].message is not None
    taken = event(3, WAIT_RECEIVED, "0/1", b"{}", message=mail[0].message.id, event_id="evt_1")
    await append(store, claim, taken)
    assert not await store.mail("wkr_1")
    await append(store, claim, event(4, WAIT_CREATED, "0/2", name="go", match={}, deadline=9e11))
    assert not await store.mail("wkr_1")


async def test_requests_reach_the_owner_and_change_unowned_runs_at_once(store: Store):
    await claimed(store)
    await store.request("run_1", "pause", 2.0)
    assert [m.kind for m in await store.mail("wkr_1")] == ["pause"]
    await store.drop_mail([m.id for m in await store.mail("wkr_1")])
    assert not await store.mail("wkr_1")
    await store.create(new_run("run_2", due_at=9e11), None)
    await store.request("run_2", "pause", 2.0)
    record = await store.get("run_2")
    assert record is not None
    assert record.status == "paused"
    await store.resume("run_2", 3.0)
    await store.request("run_2", "cancel", 4.0)
    for request in (store.request("run_0", "cancel", 1.0), store.retry("run_0", 1.0)):
        with pytest.raises(NotFound):
            await request
    with pytest.raises(Refused):
        await store.retry("run_1", 1.0)


async def test_the_end_of_a_run_is_told_and_shown(store: Store):
    changes: list[Change | None] = []
    store.on_change = changes.append
    claim = await claimed(store)
    error = {"type": "ValueError", "message": "bad", "traceback": ""}
    await append(store, claim, event(2, RUN_FAILED, error=error, caused_by=[]))
    told = [c for c in changes if c is not None and c.ended]
    assert [list(c.ended) for c in told] == [["run_1"]]
    record = await store.get("run_1")
    assert record is not None
    assert (record.status, record.error, record.finished_at) == ("failed", "ValueError: bad", 2.0)
    assert (await store.last_event("run_1")).type == RUN_FAILED
    await store.retry("run_1", 5.0)
    claims = await store.claim(worker(), ["flow"], 10, [])
    await append(store, claims[0], event(4, RUN_COMPLETED, value=b"1"))


async def test_a_full_lane_queues_and_an_end_lets_the_oldest_in(store: Store):
    fields: dict[str, Any] = {"run_limit": 2, "lane": "a", "lane_limit": 1}
    claim = await claimed(store, **fields)
    for name in ("run_2", "run_3"):
        await store.create(new_run(name, **fields), None)
    await store.create(new_run("run_4", **{**fields, "lane": "b"}), None)
    status = {n: (await store.get(n)).status for n in ("run_2", "run_3", "run_4")}  # type: ignore[union-attr]
    assert status == {"run_2": "queued", "run_3": "queued", "run_4": "pending"}
    await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
    status = {n: (await store.get(n)).status for n in ("run_2", "run_3")}  # type: ignore[union-attr]
    assert status == {"run_2": "pending", "run_3": "queued"}


async def test_streams_are_numbered_and_fenced(store: Store):
    claim = await claimed(store)
    for text in (b'"a"', b'"b"', b'"c"'):
        await store.write_chunk("run_1", claim.fence, "out", text, 1.0, "0/1", 1)
    chunks = await store.chunks("run_1", "out", 1, 10)
    assert [(c.index, c.data) for c in chunks] == [(1, b'"b"'), (2, b'"c"')]
    with pytest.raises(LeaseLost):
        await store.write_chunk("run_1", claim.fence + 1, "out", b"1", 1.0, "0/1", 1)


async def test_lists_filter_and_page(store: Store):
    for number in range(5):
        attributes = {"odd": bool(number % 2), "n": number}
        await store.create(
            new_run(f"run_{number}", attributes=attributes, created_at=float(number)), None
        )
    page = await store.list_runs(RunFilter(), 3, None)
    assert [r.id for r in page.runs] == ["run_4", "run_3", "run_2"]
    rest = await store.list_runs(RunFilter(), 3, page.cursor)
    assert ([r.id for r in rest.runs], rest.cursor) == (["run_1", "run_0"], None)
    odd = await store.list_runs(RunFilter(attributes={"odd": True}), 10, None)
    assert [r.id for r in odd.runs] == ["run_3", "run_1"]
    recent = await store.list_runs(RunFilter(created_after=3.0), 10, None)
    assert [r.id for r in recent.runs] == ["run_4", "run_3"]


async def test_a_fork_begins_with_the_history_it_is_given(store: Store):
    claim = await claimed(store)
    await append(
        store, claim, event(2, STEP_STARTED, "0/1", name="s"), event(3, STEP_COMPLETED, "0/1", b"1")
    )
    history = [e._replace(run_id="run_9", log=0) for e in await store.load("run_1")]
    run = await store.fork(new_run("run_9"), "run_1", history)
    assert (run.forked_from, run.status) == ("run_1", "pending")
    assert [e.type for e in await store.load("run_9")] == [e.type for e in history]


async def test_a_backup_taken_while_writing_is_whole(store: Store, tmp_path: Path):
    claim = await claimed(store)
    await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
    await store.backup(tmp_path / "copy.db")
    copy = SqliteStore(tmp_path / "copy.db", "wkr_copy")
    await copy.open()
    try:
        assert len(await copy.load("run_1")) == 2
    finally:
        await copy.close()


async def test_workers_are_listed_with_what_they_hold_and_retire(store: Store):
    await claimed(store)
    assert [(w.id, w.runs) for w in await store.workers()] == [("wkr_1", 1)]
    await store.retire("wkr_1")
    assert not await store.workers()
    assert len(await store.claim(worker("wkr_2"), ["flow"], 10, [])) == 1


# --- requests ---


async def status_of(store: Store, run_id: str = "run_1") -> str:
    found = await store.get(run_id)
    assert found is not None
    return found.status


@pytest.mark.parametrize(
    ("request_", "left"), [("cancel", "waiting"), ("resume", "waiting"), (None, "paused")]
)
async def test_a_request_that_crosses_a_pause_on_its_way_to_disk_is_carried_out(
    store: Store, request_: str | None, left: str
):
    claim = await claimed(store)
    await store.request("run_1", "pause", 2.0)
    if request_ == "cancel":
        await store.request("run_1", "cancel", 2.5)
    elif request_ == "resume":
        await store.resume("run_1", 2.5)
    await append(store, claim, event(2, RUN_PAUSED, held=[]))
    assert await status_of(store) == left
    types = [e.type for e in await store.load("run_1")][2:]
    assert types == {"cancel": [CANCEL_REQUESTED], "resume": [RUN_RESUMED], None: []}[request_]
    if request_ is not None:
        with pytest.raises(LeaseLost):  # what its owner would still write comes too late
            await append(store, claim, event(3, STEP_STARTED, "0/1", name="s"))


async def test_a_cancel_of_a_run_that_gets_stuck_meanwhile_ends_it(store: Store):
    claim = await claimed(store)
    await store.request("run_1", "cancel", 2.0)
    error = {"type": "NonDeterminismError", "message": "changed"}
    await append(store, claim, event(2, RUN_STUCK, error=error))
    assert await status_of(store) == "cancelled"


@pytest.mark.parametrize("request_", ["cancel", "pause"])
async def test_what_was_asked_of_a_dead_worker_comes_before_the_run_is_handed_out(
    store: Store, make: Open, request_: Literal["cancel", "pause"]
):
    await claimed(store)
    await store.request("run_1", request_, 2.0)
    other = make("wkr_2")
    await other.open()
    try:
        taken = await other.claim(worker("wkr_2"), ["flow"], 10, ["wkr_1"])
        journal = [e.type for e in await other.load("run_1")]
        if request_ == "cancel":
            assert [c.run.id for c in taken] == ["run_1"]
            assert journal[-1] == CANCEL_REQUESTED
        else:
            assert taken == []
            assert journal[-1] == RUN_PAUSED
            assert await status_of(other) == "paused"
    finally:
        await other.close()


async def test_a_run_that_ends_at_once_takes_the_children_along_that_it_waits_for(store: Store):
    claim = await claimed(store)
    described = {
        "workflow": "flow",
        "version": "1",
        "input": "{}",
        "meta": {"seed": "s"},
        "parent_id": "run_1",
    }
    await append(
        store,
        claim,
        event(2, CHILD_STARTED, "0/1", name="flow", run={"id": "run_2", **described}),
        event(3, WAIT_CREATED, "0/2", name="@run/run_3", match={}),
    )
    await store.create(new_run("run_3", parent_id="run_1"), None)  # started, and waited for
    error = {"type": "NonDeterminismError", "message": "changed"}
    await append(store, claim, event(4, RUN_STUCK, error=error))
    await store.request("run_1", "cancel", 9.0)
    assert await status_of(store) == "cancelled"
    assert await status_of(store, "run_2") == "cancelled"
    assert await status_of(store, "run_3") == "pending"
