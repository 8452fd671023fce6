"""Deleting runs: nothing of them stays but what was spent, and nothing of others goes."""

import sqlite3
from typing import Any

import pytest

from holdfast import (
    NotFound,
    Refused,
    create_webhook,
    get_run,
    publish,
    send_event,
    set_attributes,
    start,
    steer_runs,
    step,
    wait_for_event,
    wait_for_update,
    workflow,
)
from holdfast.runtime.context import write_stream
from holdfast.store.sqlite import deletion
from holdfast.testing import Harness


@step
async def large() -> str:
    return "x" * 200_000


@workflow
async def leaf(number: int) -> int:
    return number


@workflow
async def starts_nothing() -> str:
    await wait_for_event("end", timeout="30d")
    return "ended"


@workflow
async def full() -> str:
    set_attributes(team="a")
    publish("progress", 1)
    await write_stream("piece")
    await create_webhook()
    await large()
    await leaf(1)
    await start(starts_nothing)
    update = await wait_for_update("question", timeout="1d")
    assert update
    update.reply("answer")
    await wait_for_event("go", timeout="1d")
    return "done"


CALL = """
INSERT INTO calls (id, status, key, request_hash, owner, model, format, run_id, workflow, step,
  tags, scopes, held_usd, held_tokens, started_at, cost, charge, prompt, reply)
VALUES (?, ?, ?, 'h', 'o', 'm', 'chat', ?, 'full', 's', '{}', '[]', 0, 0, 1.0, 5, 5, 'p', 'r')
"""
SANDBOX = """
INSERT INTO sandboxes (id, owner, backend, isolation, runtime, timeout, cpus, memory, disk, pids,
  network, run_id, created_at, stopped_at)
VALUES ('sbx_1', 'o', 'b', 'i', 'r', 1, 1, 1, 1, 1, '[]', ?, 1, ?)
"""
COMMAND = """
INSERT INTO commands (id, sandbox_id, owner, argv, argv_cut, cwd, run_id, started_at)
VALUES ('cmd_1', 'sbx_1', 'o', '[]', 0, '/', ?, 1)
"""
EGRESS = """
INSERT INTO egress (sandbox_id, run_id, at, host, allowed, reason, sent, received)
VALUES ('sbx_1', ?, 1, 'h', 1, '', 0, 0)
"""
APPROVAL = """
INSERT INTO approvals (id, run_id, title, arguments, arguments_hash, asked_of, requested_at,
  expires_at, fallback)
VALUES ('apr_1', ?, 't', '{}', 'h', 'me', 1, 2, 'deny')
"""


def rows(harness: Harness) -> dict[str, list[tuple[Any, ...]]]:
    connection: sqlite3.Connection = harness._database.connection
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}


def mentions(harness: Harness, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for table, content in rows(harness).items():
        number = sum(any(text in str(cell) for cell in row) for row in content)
        if number:
            found[table] = number
    return found


async def _ended(harness: Harness, key: str) -> Any:
    run = await start(full.options(key=key))
    await harness.until_blocked()
    await send_event("go", run=run.id)
    assert await run.update("question", 1, id="u") == "answer"
    await harness.until_blocked()
    assert await run.result() == "done"
    await harness.until_blocked()
    return run


async def _full_run(harness: Harness) -> Any:
    run = await _ended(harness, "k")
    connection = harness._database.connection
    connection.execute(CALL, ("call_1", "completed", f"{run.id}:0/1", run.id))
    connection.execute("INSERT INTO call_replays VALUES ('call_1', x'00', 9e9)")
    connection.execute("INSERT INTO spend (scope, usd) VALUES (?, 5)", (f"run:{run.id}",))
    connection.execute("INSERT INTO spend (scope, usd) VALUES ('workflow:full', 5)")
    connection.execute("INSERT INTO spend_limits VALUES (?, 9, 9)", (f"run:{run.id}",))
    for sql in (COMMAND, EGRESS, APPROVAL):
        connection.execute(sql, (run.id,))
    connection.execute(SANDBOX, (run.id, 2.0))
    return run


async def test_nothing_of_a_deleted_run_stays_but_what_it_spent(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deletion, "AT_ONCE", 3)
    other = await _ended(harness, "other")
    kept = await other.events(), await other.published(), mentions(harness, other.id)
    run = await _full_run(harness)
    before = {t: len(content) for t, content in rows(harness).items()}
    assert len(mentions(harness, run.id)) > 12
    await run.delete()
    # The run that it had started was told by whom: that is in its own journal.
    assert set(mentions(harness, run.id)) == {"events"}
    assert mentions(harness, run.id)["events"] == 1
    connection = harness._database.connection
    call = connection.execute("SELECT cost, charge, model, workflow, run_id, prompt FROM calls")
    assert call.fetchall() == [(5, 5, "m", "full", None, None)]
    assert connection.execute("SELECT scope, usd FROM spend").fetchall() == [("workflow:full", 5)]
    assert rows(harness)["deleted"] == rows(harness)["call_replays"] == []
    assert before["runs"] - len(rows(harness)["runs"]) == 2  # with the child it had called
    with pytest.raises(NotFound):
        await run.status()
    with pytest.raises(NotFound):
        await get_run(run.id)
    again = await start(full.options(key="k"))
    assert again.id != run.id
    assert await other.result() == "done"
    assert kept == (await other.events(), await other.published(), mentions(harness, other.id))


async def test_what_is_left_by_somebody_who_died_is_removed_by_the_next(harness: Harness):
    run = await _full_run(harness)
    await harness._store._write(lambda tx: deletion.delete(tx, run.id, 1.0))
    assert "events" in mentions(harness, run.id)
    await harness.crash()
    await harness.until_blocked()
    assert mentions(harness, run.id) == {"events": 1}


async def test_only_runs_that_have_ended_are_deleted(harness: Harness):
    run = await start(starts_nothing)
    await harness.until_blocked()
    with pytest.raises(Refused, match="only runs that have ended"):
        await run.delete()
    await send_event("end")
    await run.result()
    await run.delete()
    with pytest.raises(NotFound):
        await run.delete()


@pytest.mark.parametrize("what", ["call", "sandbox"])
async def test_a_run_that_something_is_at_work_for_is_not_deleted(harness: Harness, what: str):
    run = await start(leaf, 1)
    await run.result()
    connection = harness._database.connection
    if what == "call":
        connection.execute(CALL, ("call_2", "started", None, run.id))
    else:
        connection.execute(SANDBOX, (run.id, None))
    with pytest.raises(Refused, match="has not ended yet"):
        await run.delete()
    assert await run.status() == "completed"


@workflow
async def waits_for(run_id: str) -> str:
    await wait_for_event("look", timeout="1d")
    return await (await get_run(run_id)).result()


async def test_a_run_whose_end_another_has_not_seen_is_not_deleted(harness: Harness):
    child = await start(starts_nothing)
    parent = await start(waits_for, child.id)
    await harness.until_blocked()
    await send_event("look")
    await harness.until_blocked()
    await parent.pause()
    await harness.until_blocked()
    await send_event("end")
    await harness.until_blocked()
    with pytest.raises(Refused, match="has not taken its result yet"):
        await child.delete()
    await parent.resume()
    assert await parent.result() == "ended"
    await child.delete()


async def test_who_waits_for_a_deleted_run_is_parked_with_the_reason(harness: Harness):
    gone = await start(leaf, 1)
    await gone.result()
    await gone.delete()
    run = await start(waits_for, gone.id)
    await harness.until_blocked()
    await send_event("look")
    await harness.until_blocked()
    assert await run.status() == "stuck"
    assert "was deleted" in ((await run.record()).error or "")


async def test_many_are_deleted_by_a_filter_and_counted_first(harness: Harness):
    done = [await start(leaf, number) for number in range(3)]
    for run in done:
        await run.result()
    live = await start(starts_nothing)
    await harness.until_blocked()
    counted = await steer_runs("delete", workflow="leaf", dry_run=True)
    assert (counted.matched, counted.done) == (3, 0)
    assert await done[0].status() == "completed"
    result = await steer_runs("delete")
    assert (result.matched, result.done, result.refused) == (3, 3, 0)
    assert not (await live.record()).ended
