"""What the suite's tests are made of: small records, and a store that is opened for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from holdfast.errors import HoldfastError
from holdfast.records import WAIT_CREATED, Event, Run, Worker
from holdfast.records.calls import CallEnd, CallStart
from holdfast.store.base import Append, Claim, Mail, NewRun, Store
from holdfast.store.ledger import Begun, Earlier, Ledger
from holdfast.store.parts import StoreParts

PATIENCE = 60.0
"""Seconds that a condition may take to come true; on a busy machine a lot is slow."""
FAR = 9e11
"""A moment that no test lives to see."""


@pytest.mark.asyncio
class Conformance:
    """The fixtures of every part of the suite."""

    @pytest.fixture
    def parts(self) -> StoreParts:
        """An empty store."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a fixture `parts` that gives a StoreParts of its own"
        )

    @pytest_asyncio.fixture
    async def store(self, parts: StoreParts) -> AsyncIterator[Store]:
        """Its runs, opened by a process named wkr_1."""
        async with opened(parts, "wkr_1") as store:
            yield store


@asynccontextmanager
async def opened(parts: StoreParts, process: str) -> AsyncGenerator[Store]:
    """The runs of a store, as another process opens them."""
    store = parts.runs(process)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition that another process or thread brings about."""
    end = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s"
        await asyncio.sleep(0.01)


# --- runs ---


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


def worker(name: str = "wkr_1", lease: float = 1e6) -> Worker:
    return Worker(name, 1, "here", 1.0, 0.0, lease_seconds=lease)


def event(
    seq: int,
    type: str,
    key: str = "",
    value: bytes | None = None,
    of: str = "run_1",
    **facts: Any,
) -> Event:
    """An event of a run's journal, at the time of its number."""
    return Event(of, seq, type, key, float(seq), json.dumps(facts), value)


def wait_for(seq: int, key: str, name: str = "go", match: dict[str, Any] | None = None) -> Event:
    """The event that opens a wait of run_1."""
    return event(seq, WAIT_CREATED, key, name=name, match=match or {}, deadline=FAR)


async def claimed(store: Store, **fields: Any) -> Claim:
    """A new run, in the hands of wkr_1."""
    created = await store.create(new_run(**fields), worker())
    assert created.claim is not None
    return created.claim


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


async def found(store: Store, run_id: str = "run_1") -> Run:
    """A run that is there."""
    run = await store.get(run_id)
    assert run is not None, run_id
    return run


async def status_of(store: Store, run_id: str = "run_1") -> str:
    return (await found(store, run_id)).status


async def types_of(store: Store, run_id: str = "run_1") -> list[str]:
    return [e.type for e in await store.load(run_id)]


async def offers(store: Store, key: str) -> list[Mail]:
    """The messages on offer for a wait of wkr_1's runs."""
    return [m for m in await store.mail("wkr_1") if m.key == key and m.kind == "event"]


# --- calls ---


def call_start(id: str = "call_1", **more: Any) -> CallStart:
    return CallStart(id=id, model="p/m", format="chat", started_at=1000.0)._replace(**more)


def call_end(**more: Any) -> CallEnd:
    return CallEnd("completed", 1001.0)._replace(**more)


async def begin(
    ledger: Ledger, start: CallStart, usd: int | None = 0, tokens: int = 0, **more: Any
) -> Begun | Earlier:
    """Begin a call that counts against `run:r`."""
    options: dict[str, Any] = {"scopes": ["run:r"], "usd": usd, "tokens": tokens, **more}
    return await ledger.begin(start, **options)
