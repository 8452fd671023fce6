"""A thousand runs that wait for people: they survive a restart, and cost only rows."""

import asyncio
import gc
import sqlite3
from pathlib import Path

from holdfast import Settings, approval, decide, list_approvals, open_engine, start, step, workflow
from holdfast.runtime.engine import Engine
from holdfast.runtime.loop import WorkflowTask

MANY = 1000
prepared: list[int] = []


@step
async def prepare(number: int) -> None:
    prepared.append(number)


@workflow(name="test-many-approvals")
async def waits(number: int) -> str:
    await prepare(number)
    decision = await approval("Refund", arguments={"number": number}, timeout="24h")
    return f"{number} {decision.status}"


async def out_of_memory(engine: Engine) -> None:
    while engine.runs:
        await asyncio.sleep(0.01)


def bodies() -> int:
    gc.collect()
    # By its type, not by isinstance: that asks objects of other tests, and some raise when asked.
    return sum(issubclass(type(each), WorkflowTask) for each in gc.get_objects())


async def test_a_thousand_waiting_approvals_survive_a_restart_and_cost_only_rows(tmp_path: Path):
    prepared.clear()
    path, settings = tmp_path / "store.db", Settings(idle_seconds=0.05)
    before = bodies()
    async with open_engine(path, settings=settings) as engine:
        runs = await asyncio.gather(*(start(waits, number) for number in range(MANY)))
        while len(await list_approvals(limit=2 * MANY)) < MANY:
            await asyncio.sleep(0.01)
        await out_of_memory(engine)
        assert bodies() == before, "a run that waits is in no memory"
    async with open_engine(path, settings=settings) as engine:
        await out_of_memory(engine)
        found = await list_approvals(limit=2 * MANY)
        assert len(found) == MANY
        assert (len(engine.runs), bodies()) == (0, before)
        tasks = len(asyncio.all_tasks())
        assert tasks < 10, "no task waits for them either"
        even = {each.id: each.arguments["number"] % 2 == 0 for each in found}
        await asyncio.gather(*(decide(id, approved, by="ann") for id, approved in even.items()))
        results = await asyncio.gather(*(run.result() for run in runs))
    expected = [f"{n} {'approved' if n % 2 == 0 else 'rejected'}" for n in range(MANY)]
    assert results == expected
    assert sorted(prepared) == list(range(MANY)), "nothing before the pause was done again"
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT count(*) FROM waits").fetchone()
    connection.close()
    assert rows == (0,)
