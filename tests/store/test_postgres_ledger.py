"""Model calls on PostgreSQL: those of a batch are looked up and written together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import postgres_server
from holdfast.errors import BudgetExceeded
from holdfast.records.calls import SpendLimit
from holdfast.store import opener
from holdfast.store.ledger import Begun, Earlier, Ledger
from holdfast.store.postgres.connection import PostgresConnection
from holdfast.testing.store_conformance.records import call_end, call_start

MANY = 60

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    name = postgres_server.shared().url(postgres_server.emptied_namespace())
    opened = opener.ledger(name)
    yield opened
    opened.close()


async def begin(ledger: Ledger, id: str, *, key: str | None = None) -> Begun | Earlier:
    start = call_start(id, key=key)
    return await ledger.begin(start, scopes=["run:1", "team:a"], usd=10, tokens=5)


async def test_calls_of_a_batch_take_few_messages_and_count_each_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute, executemany = PostgresConnection.execute, PostgresConnection.executemany

    def counted(self: PostgresConnection, sql: str, *rest: object) -> object:
        sent.append(sql)
        return execute(self, sql, *rest)  # type: ignore[arg-type]

    def counted_many(self: PostgresConnection, sql: str, rows: object) -> object:
        sent.append(sql)
        return executemany(self, sql, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresConnection, "execute", counted)
    monkeypatch.setattr(PostgresConnection, "executemany", counted_many)
    names = [f"call_{number}" for number in range(MANY)]
    await asyncio.gather(*(begin(ledger, name, key=f"key {name}") for name in names))
    # All at once, and the ends of some of them twice.
    ends = [ledger.finish(name, call_end(charge=3, charge_tokens=2)) for name in names]
    again = [ledger.finish(name, call_end(charge=9, charge_tokens=9)) for name in names[:5]]
    await asyncio.gather(*ends, *again)
    assert len(sent) < MANY, "fewer messages than calls"
    for scope in ("run:1", "team:a"):
        spent = await ledger.spend(scope)
        assert (spent.usd, spent.tokens, spent.calls) == (3 * MANY, 2 * MANY, MANY)
        assert (spent.reserved_usd, spent.reserved_tokens) == (0, 0)


async def test_of_one_key_in_a_batch_one_call_begins(ledger: Ledger) -> None:
    found = await asyncio.gather(*(begin(ledger, f"call_{n}", key="the same") for n in range(3)))
    assert [type(each) for each in found] == [Begun, Earlier, Earlier]
    assert (await ledger.spend("run:1")).reserved_usd == 10


async def test_a_limit_set_in_a_batch_holds_for_the_calls_after_it(ledger: Ledger) -> None:
    found = await asyncio.gather(
        begin(ledger, "call_1"),
        ledger.set_limit(SpendLimit("team:a", 15, None)),
        begin(ledger, "call_2"),
        return_exceptions=True,
    )
    assert isinstance(found[0], Begun) and isinstance(found[2], BudgetExceeded)


async def test_what_a_provider_said_keeps_no_call_of_the_batch_from_ending(ledger: Ledger) -> None:
    for name in ("call_1", "call_2"):
        await begin(ledger, name)
    strange = call_end(message="half \ud800", input_tokens=2**70)
    await asyncio.gather(ledger.finish("call_1", strange), ledger.finish("call_2", call_end()))
    ended = [await ledger.call(name) for name in ("call_1", "call_2")]
    assert [call and call.status for call in ended] == ["completed", "completed"]
