"""Waiting for changes: nobody waits for ever, and nothing is left behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from holdfast import start, step, workflow
from holdfast.runtime import notifications
from holdfast.runtime.notifications import Watchers
from holdfast.testing import Harness


@pytest.mark.parametrize("waiters", [1, 20])
async def test_a_lost_wake_up_is_made_up_for(waiters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "POLL_SECONDS", 0.01)
    nothing: Any = None
    watchers = Watchers(nothing)

    async def looks_four_times() -> list[object]:
        async with aclosing(watchers.ends("run_1")) as ends:
            return [await anext(ends) for _ in range(4)]

    found = await asyncio.wait_for(
        asyncio.gather(*(looks_four_times() for _ in range(waiters))), timeout=30
    )
    assert found == [[None] * 4] * waiters
    watchers.close()


@step
async def nothing_much() -> None: ...


@workflow
async def ends_soon() -> None:
    await nothing_much()


async def test_waiting_for_results_leaves_no_generator_to_close(harness: Harness) -> None:
    """One that is left to the garbage collector is closed by a task of its own."""
    loop = asyncio.get_running_loop()
    closed: list[object] = []
    usual = loop.create_task

    def noticed(coroutine: Any, **named: Any) -> Any:
        if type(coroutine).__name__ == "async_generator_athrow":  # `aclose()`
            closed.append(coroutine)
        return usual(coroutine, **named)

    loop.create_task = noticed  # type: ignore[method-assign]
    try:
        runs = await asyncio.gather(*(start(ends_soon) for _ in range(5)))
        await asyncio.gather(*(run.result() for run in runs))
        await asyncio.sleep(0)
    finally:
        del loop.create_task
    assert closed == []
