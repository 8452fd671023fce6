"""Bad input: each a clear error where it happens, nothing lost, the other runs unharmed."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CodecError,
    Engine,
    RunFailed,
    RunHandle,
    Settings,
    UnknownWorkflow,
    get_run,
    list_runs,
    open_engine,
    send_event,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.errors import PayloadTooLarge
from holdfast.runtime import codec
from holdfast.runtime.client import start_by_name
from holdfast.runtime.definitions import registered
from waiting import LIMIT

QUICK = Settings(sweep_seconds=0.05)


async def status_becomes(run: RunHandle[Any], status: str) -> Any:
    """Wait until the run has this status; its record."""
    from holdfast.runtime.app import current_engine

    engine = await current_engine()
    async with asyncio.timeout(LIMIT):
        async for _ in engine.watchers.changes():
            record = await run.record()
            if record.status == status:
                return record
    raise AssertionError("closed")


@step
async def plus_one(number: int) -> int:
    return number + 1


@workflow(name="bad-input-good")
async def good(number: int) -> int:
    return await plus_one(await plus_one(number))


# --- values ---


@step(retries=5)
async def make_socket() -> Any:
    return {"items": [1, {"client": socket.socket()}]}


@step
async def take_anything(value: Any) -> None:
    return None


@workflow(name="bad-input-result")
async def bad_result() -> None:
    await make_socket()


@workflow(name="bad-input-argument")
async def bad_argument() -> None:
    await take_anything({"deep": [object()]})


@workflow(name="bad-input-own-result")
async def bad_own_result() -> Any:
    await plus_one(1)
    return {"a": {1, 2}}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the socket is nobody's to close
async def test_a_step_result_that_cant_be_stored_fails_at_once_and_names_the_path(
    tmp_path: Path,
) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(bad_result)
        with pytest.raises(RunFailed, match=r"\$\.result\.items\[1\]\.client: a socket can't be"):
            await run.result()
        attempts = [s.attempts for s in await run.steps()]
        assert attempts == [1], "it would not get better by trying again"
        assert await (await start(good, 1)).result() == 3


async def test_an_argument_that_cant_be_stored_fails_where_it_is_given(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(bad_argument)
        with pytest.raises(RunFailed, match=r"\$\.value\.deep\[0\]: a object can't be stored"):
            await run.result()


async def test_a_workflow_result_that_would_come_back_different_is_refused(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(bad_own_result)
        with pytest.raises(RunFailed, match=r"\$\.result\.a: a set without a type hint"):
            await run.result()


async def test_an_event_that_cant_be_stored_is_refused_and_names_the_path(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        with pytest.raises(CodecError, match=r"\$\.payload\.when\[0\]: a object can't be stored"):
            await send_event("anything", {"when": [object()]})


@step
async def long_text(length: int) -> str:
    return "x" * length


@workflow(name="bad-input-long")
async def long_result(length: int) -> int:
    return len(await long_text(length))


@workflow(name="bad-input-echo")
async def echo(text: str) -> str:
    return await take_and_give(text)


@step
async def take_and_give(text: str) -> str:
    return text


async def test_an_oversize_result_is_refused_with_both_numbers(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        run = await start(long_result, codec.MAX_BYTES)
        with pytest.raises(RunFailed, match=r"67,108,866 bytes are more than .* 67,108,864"):
            await run.result()


async def test_an_oversize_argument_of_a_start_is_refused(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        with pytest.raises(PayloadTooLarge, match=r"\$\.text: .* more than the limit"):
            await start(echo, "x" * codec.MAX_BYTES)
        assert (await list_runs()).runs == []


async def test_an_oversize_event_is_refused(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        with pytest.raises(PayloadTooLarge, match=r"\$\.payload"):
            await send_event("anything", "x" * codec.MAX_BYTES)


async def test_a_large_payload_goes_to_a_blob_and_comes_back(tmp_path: Path) -> None:
    text = "déjà vu " * 100_000
    async with open_engine(tmp_path / "store.db"):
        assert await (await start(echo, text)).result() == text
    async with open_engine(tmp_path / "store.db"):
        [run] = (await list_runs()).runs
        assert await (await get_run(run.id)).result() == text, "after a restart, too"


# --- names and arguments ---


async def test_starting_an_unknown_workflow_by_name_says_which_are_known(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        with pytest.raises(
            UnknownWorkflow, match=r"no workflow is named 'no-such'.*bad-input-good"
        ):
            await start_by_name("no-such", b"{}")
        assert (await list_runs()).runs == []


async def test_a_run_whose_workflow_no_worker_knows_stays_as_it_is(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db", worker=False):
        orphan = await start(good, 1)
    known = registered().pop("bad-input-good")
    try:
        async with open_engine(tmp_path / "store.db", settings=QUICK):
            other = await start(echo, "unharmed")
            assert await other.result() == "unharmed"
            assert (await orphan.record()).status == "pending"
    finally:
        registered()["bad-input-good"] = known
    async with open_engine(tmp_path / "store.db"):
        assert await orphan.result() == 3


async def test_wrong_arguments_are_refused_before_a_run_exists(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        with pytest.raises(CodecError, match="missing a required argument: 'number'"):
            await start(good)  # type: ignore[call-arg]
        with pytest.raises(CodecError, match="unexpected keyword argument 'colour'"):
            await start(good, 1, colour="red")  # type: ignore[call-arg]
        with pytest.raises(CodecError, match=r"\$\.number"):
            await start(good, "three")  # type: ignore[arg-type]
        with pytest.raises(CodecError, match=r"\$\.number"):
            await start_by_name("bad-input-good", b'{"number": "x"}')
        with pytest.raises(CodecError, match=r"\$\.colour"):
            await start_by_name("bad-input-good", b'{"number": 1, "colour": 2}')
        with pytest.raises(CodecError):
            await start_by_name("bad-input-good", b"no json")
        assert (await list_runs()).runs == []


# --- two programs with different code ---


def program(version: str) -> Any:
    """The same workflow as two programs have it."""

    async def ask(question: str) -> str:
        return question.upper()

    async def tell(question: str) -> str:
        return question.lower()

    asked = step(ask if version == "old" else tell)

    @workflow(name="bad-input-changed")
    async def changed(question: str) -> str:
        answer = await asked(question)
        reply = await wait_for_event("bad-input-go", timeout="1h")
        return f"{answer} {reply.payload if reply else 'nothing'}"

    return changed


async def test_a_run_of_other_code_is_put_aside_and_goes_on_with_its_own(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with open_engine(store) as engine:
        run = await start(program("old"), "What?")
        await _has_waits(engine, run)
    program("new")
    async with open_engine(store, settings=QUICK):
        record = await status_becomes(run, "stuck")
        assert 'step ask({"question":"What?"})' in record.error
        assert 'step tell({"question":"What?"})' in record.error
        assert await (await start(good, 1)).result() == 3, "others go on"
        await send_event("bad-input-go", "now")
        length = len(await run.events())
        await run.resume()
        await status_becomes(run, "stuck")
        recorded = [event.type for event in (await run.events())[length:]]
        assert recorded == ["run.resumed", "run.stuck"], "the wrong code changes nothing"
    program("old")
    async with open_engine(store):
        await run.resume()
        assert await run.result() == "WHAT? now"


async def _has_waits(engine: Engine, run: RunHandle[Any]) -> None:
    async for _ in engine.watchers.changes():
        if any(event.type == "wait.created" for event in await run.events()):
            return
