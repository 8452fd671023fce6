"""A workflow to steer, and how to wait until nothing happens to it any more.

Its steps end at once, but for those that wait at a gate; what was done is noted by run.
"""

import asyncio

from holdfast import FatalError, Settings, sleep, step, step_context, wait_for_event, workflow
from holdfast.testing import Harness

SETTINGS = Settings(unhurried_seconds=0.0)
LIMIT = 2

effects: dict[str, list[str]] = {}
"""What each run has done, by its id; what was done twice in a row counts once."""
gates: dict[str, asyncio.Event] = {}
"""The gates that steps wait at now, by run."""
failed: set[str] = set()
changed: set[str] = set()
"""Not empty while the workflow's code is another than the one that runs began with."""


def forget() -> None:
    effects.clear()
    gates.clear()
    failed.clear()
    changed.clear()


def note(what: str) -> None:
    done = effects.setdefault(step_context().run_id, [])
    if done[-1:] != [what]:
        done.append(what)


@step
async def act(what: str) -> None:
    note(what)


@step
async def other(what: str) -> None:
    note(what)


@step
async def pass_gate(what: str) -> None:
    run_id = step_context().run_id
    gates[run_id] = asyncio.Event()
    try:
        await gates[run_id].wait()
    finally:
        del gates[run_id]
    note(what)


@step(retries=0)
async def fail_once() -> None:
    run_id = step_context().run_id
    note("try")
    if run_id not in failed:
        failed.add(run_id)
        raise FatalError("the first time")


@workflow(concurrency=LIMIT)
async def subject(kind: str) -> str:
    """`plain`; `gated` in its first step, `slow` in its cleaning up; `failing` until retried."""
    try:
        if changed:
            await other("a")
        await (pass_gate("a") if kind == "gated" else act("a"))
        await act("then")
        if kind == "failing":
            await fail_once()
        await wait_for_event("go", timeout="300d")
        await act("b")
        await sleep("1h")
        await act("c")
        return "done"
    finally:
        await (pass_gate("clean") if kind == "slow" else act("clean"))


async def settle(harness: Harness) -> None:
    """Wait until nothing more happens without time passing, a gate opening or a request."""
    quiet = 0
    while quiet < 4:
        await asyncio.sleep(0)
        engine = harness.engine
        runs = list(engine.runs.values())
        calm = engine._resting and not engine._prod.is_set()
        at_gates = all(len(run.steps_under_way) == (run.id in gates) for run in runs)
        written = all(run._all_written and run._execution is not None for run in runs)
        quiet = quiet + 1 if calm and at_gates and written else 0


async def pass_time(harness: Harness, end: float) -> None:
    """Let time pass; what falls due meanwhile happens, at its moment."""
    await settle(harness)
    while (moment := harness.engine.next_alarm()) is not None and moment <= end:
        harness.clock.advance(moment)
        await settle(harness)
    harness.clock.advance(end)
    await settle(harness)
