"""A store behind pgbouncer in transaction mode, with fewer server connections than clients."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import psycopg
import pytest

import postgres_pooler
import postgres_server
from chaos import flows
from holdfast import open_engine, send_event, start
from holdfast.store import opener
from holdfast.store.parts import StoreParts
from holdfast.store.postgres.url import PostgresUrl
from holdfast.testing.store_conformance.ownership import OwnershipConformance

pytestmark = [
    pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING),
    pytest.mark.skipif(postgres_pooler.program() is None, reason=postgres_pooler.MISSING),
]


@pytest.fixture(scope="module")
def pooler() -> Iterator[postgres_pooler.Pooler]:
    made = postgres_pooler.Pooler(postgres_server.shared())
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def test_runs_go_on_through_a_pooler_that_is_restarted_again_and_again(
    pooler: postgres_pooler.Pooler,
) -> None:
    url = pooler.url("pooled")
    async with open_engine(url):
        runs = [await start(flows.chaos_mixed, number) for number in range(12)]
        for number in range(12):
            await send_event("go", {"number": number})
            if number % 4 == 3:
                # By turns: with the connections that are open, and politely.
                how = signal.SIGKILL if number % 8 == 3 else signal.SIGTERM
                await asyncio.to_thread(pooler.stop, how)
                await asyncio.to_thread(pooler.start)
        results = await asyncio.gather(*(run.result() for run in runs))
    assert results == [flows.result_of(number) for number in range(12)]
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo, prepare_threshold=None) as connection:
        sql = f"""SELECT run_id FROM {known.schema}.events GROUP BY run_id
        HAVING count(*) <> max(seq)"""
        assert connection.execute(sql.encode()).fetchall() == []


class TestPostgresPooler(OwnershipConformance):
    """A part of what every store does, on connections that change with each transaction."""

    @pytest.fixture
    def parts(self, pooler: postgres_pooler.Pooler) -> StoreParts:
        return opener.parts(pooler.url(postgres_server.emptied_namespace()))
