"""Thousands of schedules, each by its seed: nothing lost, nothing doubled, always the same end."""

import asyncio
import json
import logging
import os
from collections import Counter
from typing import Any

import pytest

from holdfast import HoldfastError, sleep, step, step_context, wait_for_event, workflow
from holdfast.ids import derived_id
from holdfast.records import COMPLETIONS, RUN_ENDS, Event
from holdfast.runtime.definitions import Workflow
from holdfast.store.base import Append, NewRun
from holdfast.store.sqlite import events, journal, leases, mailbox, projections
from holdfast.store.sqlite.database import Transaction
from holdfast.testing.world import World

SEEDS = int(os.environ.get("HOLDFAST_SEEDS", "800"))
"""`make crash` tries more."""
PARTS = 4


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="holdfast")  # thousands of full disks


effects: Counter[tuple[str, str]] = Counter()


@step(retries=5, backoff=1)
async def act(name: str, number: int) -> str:
    context = step_context()
    effects[(context.idempotency_key, name)] += 1
    await asyncio.sleep((hash((number, context.attempt)) % 7) * 0.05)
    if (number * 7 + context.attempt) % 5 == 0:
        raise ValueError("flaky")
    return f"{name}{number}"


async def chain(name: str, length: int) -> str:
    text = ""
    for number in range(length):
        text += await act(name, number)
    return text


@workflow
async def sequential() -> str:
    return await chain("s", 6)


@workflow
async def parallel() -> list[str]:
    first = await asyncio.gather(chain("a", 3), chain("b", 1), chain("c", 2))
    tasks = [asyncio.create_task(chain(name, 1)) for name in "xyz"]
    done, _ = await asyncio.wait(tasks)
    return [*first, *sorted(task.result() for task in done)]


@workflow
async def little(number: int) -> str:
    await sleep(2)
    return await act("child", number)


@workflow
async def mixed() -> list[str]:
    before = await act("before", 1)
    try:
        async with asyncio.timeout(3):
            await sleep("1h")
    except TimeoutError:
        before += "!"
    reply = await wait_for_event("news", timeout="10m")
    children = await asyncio.gather(little(1), little(2))
    return [before, str(bool(reply)), *children]


WORKFLOWS: dict[str, Workflow[..., Any]] = {
    w.name: w for w in (sequential, parallel, little, mixed)
}
EXPECTED = {
    "sequential": "s0s1s2s3s4s5",
    "parallel": ["a0a1a2", "b0", "c0c1", "x0", "y0", "z0"],
    "mixed": ["before1!", "True", "child1", "child2"],
}


def create(world: World, name: str, number: int) -> str:
    run_id = derived_id("run", "run_0000000000", f"{name}{number}")
    now = world.clock.time
    new = NewRun(run_id, name, "1", b"{}", {"seed": run_id}, now, now)
    tx = Transaction(world.database.connection)
    leases.create(tx, new, None, leases.Moment(now, now, ""))
    tx.flush()
    return run_id


def check(world: World, runs: dict[str, str]) -> None:
    """Everything that must hold, whatever happened."""
    connection = world.database.connection
    for run_id, name in runs.items():
        history = events.load(connection, run_id)
        closed = Counter(e.key for e in history if e.type in COMPLETIONS)
        assert max(closed.values()) == 1, f"a result was recorded twice: {closed}"
        last = history[-1]
        assert sum(e.type in RUN_ENDS for e in history) == 1
        assert last.type == "run.completed", (last.type, last.meta)
        assert json.loads(last.value or b"") == EXPECTED[name]
        _check_order(history)
    children = connection.execute("SELECT count(*) FROM runs WHERE workflow = 'little'").fetchone()
    assert children[0] == 2 * list(runs.values()).count("mixed"), "a child was started twice"
    left = connection.execute("SELECT count(*) FROM waits").fetchone()
    assert left[0] == 0


def _check_order(history: list[Event]) -> None:
    opened: set[str] = set()
    for event in history:
        if event.type in COMPLETIONS:
            assert event.key in opened, f"{event.key} was completed before it was asked for"
        elif event.key:
            opened.add(event.key)


def simulate(seed: int) -> str:
    """One world, from its seed to its end; returns the fingerprint of its trace."""
    effects.clear()
    world = World(seed, WORKFLOWS)
    try:
        names = world.random.sample(list(EXPECTED), world.random.randrange(1, 4))
        runs = {create(world, name, n): name for n, name in enumerate(names)}
        sent = False

        def send_news() -> None:
            tx = Transaction(world.database.connection)
            mailbox.send(tx, "news", b"{}", "news-1", None, world.clock.time)
            for store in world.database.stores:  # those that are open: one may be restarting
                store.wake()

        def ended() -> bool:
            nonlocal sent
            if not sent and world.steps > 300:
                sent = True
                send_news()
            query = "SELECT count(*) FROM runs WHERE finished_at IS NULL"
            return sent and world.database.connection.execute(query).fetchone()[0] == 0

        finished = world.run(ended)
        assert finished, f"seed {seed}: not finished after {world.steps} callbacks"
        check(world, runs)
        return world.trace.hexdigest()
    finally:
        world.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_seed_ends_right(part: int):
    for seed in range(part, SEEDS, PARTS):
        try:
            simulate(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_same_seed_gives_the_same_trace():
    assert [simulate(seed) for seed in range(10)] == [simulate(seed) for seed in range(10)]


def test_without_fencing_the_simulation_finds_the_damage(monkeypatch: pytest.MonkeyPatch):
    """The negative control: if this passed, the seeds above would prove nothing."""

    def unfenced(tx: Transaction, append: Append) -> None:
        # As `journal.append`, without looking at the fence: whoever comes writes at the end.
        last = tx.last_seq.get(append.run_id)
        if last is None:
            query = "SELECT max(seq) FROM events WHERE run_id = ?"
            last = tx.execute(query, (append.run_id,)).fetchone()[0] or 0
        moved = [event._replace(seq=last + 1 + n) for n, event in enumerate(append.events)]
        projections.write(tx, moved)

    monkeypatch.setattr(journal, "append", unfenced)
    with pytest.raises((AssertionError, HoldfastError)):
        for seed in range(60):
            simulate(seed)
