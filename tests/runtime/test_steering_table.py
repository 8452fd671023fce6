"""Every cell of the table in `docs/reference/steering.md`, tried."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from steered import (
    LIMIT,
    SETTINGS,
    changed,
    effects,
    forget,
    gates,
    pass_time,
    settle,
    subject,
)

from holdfast import Refused, RunHandle, list_runs, send_event, start
from holdfast.testing import Harness

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "steering.md"


def read_table() -> dict[tuple[str, str], str]:
    """Request and state to what happens, as the page says."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    header = next(place for place, row in enumerate(rows) if row[0] == "request")
    states = rows[header][1:]
    return {
        (row[0], state): cell
        for row in rows[header + 2 :]
        for state, cell in zip(states, row[1:], strict=True)
    }


TABLE = read_table()
REQUESTS = ("cancel", "terminate", "pause", "resume", "retry", "fork", "event")
STATES = (
    "queued",
    "delayed",
    "pending",
    "running",
    "waiting",
    "held",
    "paused",
    "stuck",
    "cancelling",
    "completed",
    "failed",
    "cancelled",
)


def test_the_table_has_a_cell_for_every_request_in_every_state():
    rows = (*REQUESTS, "deadline")
    assert set(TABLE) == {(request, state) for request in rows for state in STATES}


@pytest.fixture
async def world() -> AsyncIterator[Harness]:
    forget()
    async with Harness(settings=SETTINGS) as opened:
        yield opened


Run = RunHandle[str]


async def _after(harness: Harness, seconds: float) -> None:
    await pass_time(harness, harness.clock.now() + seconds)


async def queued(harness: Harness) -> Run:
    for _ in range(LIMIT):
        await start(subject, "plain")
    return await start(subject, "plain")


async def delayed(_harness: Harness) -> Run:
    return await start(subject.options(delay="1h"), "plain")


async def pending(harness: Harness) -> Run:
    run = await start(subject.options(delay="1h"), "plain")
    await settle(harness)
    harness.clock._now += 3601  # the worker has not looked at the clock yet
    return run


async def running(_harness: Harness) -> Run:
    return await start(subject, "gated")


async def waiting(_harness: Harness) -> Run:
    return await start(subject, "plain")


async def held(harness: Harness) -> Run:
    run = await delayed(harness)
    await run.pause()
    return run


async def paused(harness: Harness) -> Run:
    run = await waiting(harness)
    await settle(harness)
    await run.pause()
    return run


async def stuck(harness: Harness) -> Run:
    run = await waiting(harness)
    await settle(harness)
    changed.add("code")
    await run.pause()
    await settle(harness)
    await run.resume()
    return run


async def cancelling(harness: Harness) -> Run:
    run = await start(subject, "slow")
    await settle(harness)
    await run.cancel()
    return run


async def completed(harness: Harness) -> Run:
    run = await waiting(harness)
    await send_event("go", run=run.id)
    await _after(harness, 4000)
    return run


async def failed(_harness: Harness) -> Run:
    return await start(subject, "failing")


async def cancelled(harness: Harness) -> Run:
    run = await waiting(harness)
    await settle(harness)
    await run.cancel()
    return run


MAKE: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    make.__name__: make
    for make in (
        queued,
        delayed,
        pending,
        running,
        waiting,
        held,
        paused,
        stuck,
        cancelling,
        completed,
        failed,
        cancelled,
    )
}
IS = {
    "queued": "queued",
    "delayed": "pending",
    "pending": "pending",
    "running": "under way",
    "waiting": "under way",
    "held": "paused",
    "paused": "paused",
    "stuck": "stuck",
    "cancelling": "under way",
}


async def status(run: Run) -> str:
    found = await run.status()
    return "under way" if found in ("running", "waiting") else found


async def ask(run: Run, request: str) -> Any:
    if request == "event":
        return await send_event("go", run=run.id)
    return await getattr(run, request)()


async def let_everything_go_on(harness: Harness, run: Run) -> None:
    """Remove whatever keeps the run from going on, but for an event."""
    changed.clear()
    for each in (await list_runs()).runs:
        if each.id != run.id and not each.ended:
            await RunHandle(each.id, run._result).terminate()
    if await run.status() in ("paused", "stuck"):
        await run.resume()
    await _after(harness, 4000)
    if run.id in gates:
        gates[run.id].set()
    await settle(harness)
    await _after(harness, 4000)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_request_does_what_the_table_says(world: Harness, request_: str, state: str):
    run = await MAKE[state](world)
    if state != "pending":
        await settle(world)
    assert await status(run) == IS.get(state, state)
    done = list(effects.get(run.id, ()))
    says = TABLE[request_, state]
    if says == "refused":
        with pytest.raises(Refused):
            await ask(run, request_)
        assert await status(run) == IS.get(state, state)
        return
    if says == "comes in" and state == "failed":
        for _ in range(LIMIT):  # so that there is no place for it
            await start(subject, "plain")
    answer = await ask(run, request_)
    if says == "kept":
        if state != "pending":
            await settle(world)
            assert (await status(run), effects.get(run.id, [])) == (IS[state], done)
        await let_everything_go_on(world, run)
        assert await status(run) == ("cancelled" if state == "cancelling" else "completed")
        return
    await settle(world)
    now = (await status(run), effects.get(run.id, [])[len(done) :])
    if says == "ends":
        assert now == ("cancelled", [])
    elif says == "cleans up":
        assert now == ("cancelled", ["clean"])
    elif says == "nothing":
        assert now == (IS.get(state, state), [])
    elif says == "pauses":
        if run.id in gates:
            gates[run.id].set()
            await settle(world)
        assert await status(run) == "paused"
        assert effects.get(run.id, [])[len(done) :] == (["a"] if state == "running" else [])
    elif says == "comes in":
        assert now == ("queued" if state == "failed" else "pending", [])
        await send_event("go", run=run.id)
        await let_everything_go_on(world, run)
        assert await status(run) == "completed"
    elif says == "goes on":
        await send_event("go", run=run.id)
        await let_everything_go_on(world, run)
        assert await status(run) == "completed"
    else:
        assert says == "new run"
        assert now == (("under way" if state == "pending" else IS.get(state, state)), now[1])
        assert answer.id != run.id
        assert await status(answer) in ("under way", "queued", "failed", "stuck")


DAYS = 5 * 86_400.0


@pytest.mark.parametrize("state", STATES)
async def test_a_deadline_does_what_the_table_says(
    world: Harness, state: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subject, "_timeout", DAYS)
    run = await MAKE[state](world)
    if state != "pending":
        await settle(world)
    assert await status(run) == IS.get(state, state)
    done = list(effects.get(run.id, ()))
    says = TABLE["deadline", state]
    deadline = (await run.record()).deadline
    assert deadline is not None
    if state == "pending":
        world.clock._now = deadline + 1  # nobody has looked at the clock yet
        world.engine._prod.set()
        await settle(world)
    elif says == "later":
        await pass_time(world, world.clock.now() + DAYS)
        assert await status(run) == "under way"
        done = list(effects[run.id])
    await pass_time(world, deadline + world.engine.settings.cleanup_seconds)
    now = (await status(run), effects.get(run.id, [])[len(done) :])
    if says == "nothing":
        assert now == (IS.get(state, state), [])
        return
    ended = "cancelled" if says == "cut short" else "failed"
    assert now == (ended, [] if says in ("fails", "cut short") else ["clean"])
    assert ((await run.record()).error or "").startswith("RunTimeout: subject had not ended within")
