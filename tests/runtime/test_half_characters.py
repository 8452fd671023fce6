"""Half of a surrogate pair is no character, and still turns up: no run hangs on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import (
    RunFailed,
    open_engine,
    send_event,
    set_attributes,
    start,
    step,
    wait_for_event,
    workflow,
    write_stream,
)

HALF = "half \ud800 a character"


@step(retries=1, backoff="1ms")
async def strange_file() -> None:
    raise FileNotFoundError("no file na\udcffme")


@workflow
async def named() -> str:
    set_attributes(**{"task": HALF, "na\ud800me": "x"})
    return "done"


@workflow
async def failing() -> None:
    await strange_file()


@workflow
async def waiting() -> str:
    await write_stream("piece", stream=HALF)
    reply = await wait_for_event(HALF, timeout="1h")
    return reply.payload if reply else "nothing"


async def test_attributes_are_kept_without_half_characters(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db") as engine:
        run = await start(named)
        assert await run.result() == "done"
        found = await engine.store.get(run.id)
        assert found is not None
        assert found.attributes == {"task": "half ? a character", "na?me": "x"}


async def test_an_error_with_half_a_character_ends_its_run(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db") as engine:
        run = await start(failing)
        with pytest.raises(RunFailed, match="no file"):
            await run.result()
        found = await engine.store.get(run.id)
        assert found is not None
        assert found.error == "FileNotFoundError: no file na\\udcffme"


async def test_an_event_is_found_by_a_name_with_half_a_character(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(waiting)
        await send_event("half \udfff a character", "another's name")
        await send_event(HALF, "its name")
        assert await run.result() == "its name"


@step
async def half() -> list[str]:
    return ["whole", HALF]


@workflow
async def returning() -> list[str]:
    return await half()


async def test_a_value_with_half_a_character_is_refused_by_its_place(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(returning)
        with pytest.raises(RunFailed, match=r"\$\.result\[1\]: text with half of a surrogate pair"):
            await run.result()
