"""Processes that wake one another: here two event loops, each with a socket of its own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from holdfast.store.sqlite.wake import Wake
from waiting import LIMIT


async def test_a_thread_wakes_the_others_while_its_loop_is_held_up(tmp_path: Path) -> None:
    store, woken = tmp_path / "store.db", asyncio.Event()
    made: list[Wake] = []
    is_made, let_go = threading.Event(), threading.Event()

    async def held_up() -> None:
        made.append(Wake(store, "wkr_a", lambda: None))
        is_made.set()
        let_go.wait(60)  # the whole loop, not this task alone
        made[0].close()

    other = threading.Thread(target=lambda: asyncio.run(held_up()))
    mine = Wake(store, "wkr_b", woken.set)
    try:
        other.start()
        await asyncio.to_thread(is_made.wait, 60)
        await asyncio.to_thread(made[0].tell_from_thread)
        await asyncio.wait_for(woken.wait(), LIMIT)
        assert other.is_alive()
    finally:
        let_go.set()
        await asyncio.to_thread(other.join)
        mine.close()
