"""Calls wait for room that others only hold: in order, with a limit, across processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.support import Service, make_gateway
from gateway.test_budgets import NANO, priced, worker
from holdfast.errors import BudgetExceeded
from holdfast.gateway.calls import generate_text, tagged
from holdfast.gateway.messages import Request
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.records.calls import CallEnd, CallStart, SpendLimit
from holdfast.store.sqlite.ledger import Begun, SqliteLedger
from holdfast.testing.providers import FakeProvider
from waiting import until


def tenth(request: Request) -> Say:
    """A tenth of what was asked for."""
    return Say("x", usage=Usage(10, (request.max_tokens or 100) // 10), delay=0.01)


async def test_calls_wait_for_what_others_only_hold() -> None:
    with FakeProvider(tenth) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=[{"per": "day", "usd": 2}]))
        calls = [
            generate_text("fake-chat/m", prompt="hi", max_tokens=100, gateway=gateway)
            for _ in range(100)
        ]
        await asyncio.gather(*calls)  # twenty hold it all; a hundred spend half of it
        (day,) = {call.start.started_at // 86400 for call in await gateway.ledger.calls()}
        spend = await _day(gateway, day)
        assert (spend.usd, spend.reserved_usd, spend.calls) == (NANO, 0, 100)
        await gateway.close()


async def _day(gateway: Any, day: float) -> Any:
    from holdfast.gateway.limits import scopes_of

    (scope,) = scopes_of(CallStart("x", "m", "chat", day * 86400 + 1), ())
    return await gateway.ledger.spend(scope)


def test_processes_use_what_fits_and_never_more(tmp_path: Path) -> None:
    """One after another, 191 calls of $0.01 fit into $2 that must have room for $0.10 each."""
    with FakeProvider(tenth) as fake:
        workers = [worker(fake.url, 120, tmp_path / "store.db") for _ in range(2)]
        told = [json.loads(one.communicate()[0]) for one in workers]
        made = sum(one["done"] for one in told)
        assert made == fake.hits
        assert 0.95 * 191 <= made <= 191
        assert sum(one["refused"] for one in told) == 240 - made
    (usd, held) = _row(
        tmp_path / "store.db", "SELECT usd, held_usd FROM spend WHERE scope='run:run_1'"
    )
    assert (usd, held) == (made * NANO // 100, 0)
    assert _row(tmp_path / "store.db", "SELECT count(*) FROM spend_queue") == (0,)


def _row(store: Path, sql: str) -> Any:
    with sqlite3.connect(store) as connection:
        row = connection.execute(sql).fetchone()
    connection.close()
    return row


def test_those_who_wait_for_a_process_that_is_killed_go_on(tmp_path: Path) -> None:
    """Its calls count in full, so that what is left fits the others: they wait no more."""
    store = tmp_path / "store.db"
    hang = [Say("x", delay=3600)] * 15
    # So slow that those of the second are still at it when the first is killed.
    fine = [Say("fine", delay=0.5)] * 100
    with FakeProvider([*hang, *fine]) as fake:
        first = worker(fake.url, 15, store)
        until(lambda: fake.hits == 15)
        second = worker(fake.url, 30, store)
        until(
            lambda: (
                _row(store, "SELECT count(*) FROM spend_queue") != (0,) or second.poll() is not None
            )
        )
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        told = json.loads(second.communicate()[0])
    assert told["done"] > 0 and told["done"] + told["refused"] == 30
    assert _row(store, "SELECT held_usd FROM spend WHERE scope='run:run_1'") == (0,)


async def hold(ledger: SqliteLedger, name: str, tokens: int, *, wait: float = 60) -> Any:
    start = CallStart(name, "m", "chat", 1.0)
    return await ledger.begin(start, scopes=["tag:a"], usd=0, tokens=tokens, wait=wait)


async def settle(ledger: SqliteLedger, name: str, tokens: int = 1) -> None:
    await ledger.finish(name, CallEnd("completed", 2.0, charge_tokens=tokens))


async def limited(store: Path) -> SqliteLedger:
    ledger = SqliteLedger(store)
    await ledger.set_limit(SpendLimit("tag:a", tokens=100))
    return ledger


async def waiting(store: Path, number: int) -> None:
    while _row(store, "SELECT count(*) FROM spend_queue") != (number,):
        await asyncio.sleep(0.01)


async def test_who_came_first_goes_first_in_whatever_process(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    one, other = await limited(store), await limited(store)  # two owners, as two processes are
    order: list[str] = []

    async def call(ledger: SqliteLedger, name: str, tokens: int) -> None:
        assert isinstance(await hold(ledger, name, tokens), Begun)
        order.append(name)
        await settle(ledger, name)

    await hold(one, "big", 90)
    calls: list[asyncio.Task[None]] = []
    # A small one would fit at once, and does not overtake.
    for number, (name, tokens) in enumerate({"a": 80, "b": 5, "c": 80, "d": 5}.items()):
        ledger = (one, other)[number % 2]
        calls.append(asyncio.create_task(call(ledger, name, tokens)))
        await waiting(store, number + 1)
    await settle(one, "big")
    await asyncio.gather(*calls)
    assert order.index("a") < order.index("c")
    assert sorted(order) == ["a", "b", "c", "d"] and order[0] in "ab"
    rows = sqlite3.connect(store).execute("SELECT id FROM calls ORDER BY rowid").fetchall()
    assert [row[0] for row in rows] == ["big", "a", "b", "c", "d"]
    one.close()
    other.close()


async def test_a_call_is_refused_at_once_if_it_can_never_fit(tmp_path: Path) -> None:
    ledger = await limited(tmp_path / "store.db")
    await hold(ledger, "a", 10)
    await settle(ledger, "a", 10)
    with pytest.raises(BudgetExceeded):
        await hold(ledger, "b", 91, wait=10**6)
    ledger.close()


async def test_one_in_line_is_refused_as_soon_as_it_can_never_fit(tmp_path: Path) -> None:
    ledger = await limited(tmp_path / "store.db")
    await hold(ledger, "a", 60)
    waits = asyncio.create_task(hold(ledger, "b", 60, wait=10**6))
    await waiting(tmp_path / "store.db", 1)
    await settle(ledger, "a", 60)
    with pytest.raises(BudgetExceeded):
        await waits
    await waiting(tmp_path / "store.db", 0)
    ledger.close()


async def test_the_wait_has_a_limit_of_the_callers_own(tmp_path: Path) -> None:
    ledger = await limited(tmp_path / "store.db")
    await hold(ledger, "a", 60)
    with pytest.raises(BudgetExceeded, match=r"waited 0\.05 s"):
        await hold(ledger, "b", 60, wait=0.05)
    with pytest.raises(BudgetExceeded):
        await hold(ledger, "c", 60, wait=0)
    await waiting(tmp_path / "store.db", 0)
    ledger.close()


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_one_who_leaves_the_line_does_not_hold_it_up(tmp_path: Path, how: str) -> None:
    store = tmp_path / "store.db"
    ledger, other = await limited(store), await limited(store)
    await hold(ledger, "a", 60)
    leaves = asyncio.create_task(hold(other, "b", 60))
    await waiting(store, 1)
    stays = asyncio.create_task(hold(ledger, "c", 60))
    await waiting(store, 2)
    if how == "cancelled":
        leaves.cancel()
    else:
        other.close()
    await settle(ledger, "a")
    assert isinstance(await stays, Begun)
    leaves.cancel()
    await asyncio.wait([leaves])
    await waiting(store, 0)
    ledger.close()
    if how == "cancelled":
        other.close()


async def test_a_fallback_waits_for_room_and_two_of_them_not_for_each_other() -> None:
    def script() -> Callable[[Request], Any]:
        seen: set[str] = set()

        def answer(request: Request) -> Any:
            text = request.messages[0].text
            if request.model == "a" and text not in seen:
                seen.add(text)
                return Fail("cut", after=4)
            return Say("fine", usage=Usage(1, 1), delay=0.01)

        return answer

    with FakeProvider(script()) as fake:
        config = priced(fake.url, fallbacks={"fake-chat/a": ["fake-chat/b"]})
        # Each may lose $0.1 and needs $0.1 more: both at once are $0.4, one after another $0.31.
        config["budgets"] = [{"per": "day", "usd": "0.35"}]
        gateway = make_gateway(**config)
        calls = [
            generate_text("fake-chat/a", prompt=str(n), max_tokens=100, gateway=gateway)
            for n in range(2)
        ]
        replies = await asyncio.gather(*calls)
        assert [reply.text for reply in replies] == ["fine", "fine"]
        await gateway.close()


def test_a_client_says_how_long_it_waits() -> None:
    from urllib.error import HTTPError
    from urllib.request import Request as Ask
    from urllib.request import urlopen

    with (
        FakeProvider([Say("x", delay=3600)]) as fake,
        Service(
            lambda: make_gateway(**priced(fake.url, budgets=[{"per": "day", "usd": "0.1"}])),
            open_to_all=True,
        ) as service,
    ):
        body = {
            "model": "fake-chat/m",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "x"}],
        }

        async def first() -> None:
            with tagged("holds"):
                await generate_text(
                    "fake-chat/m", prompt="x", max_tokens=100, gateway=service.gateway
                )

        async def begin() -> Any:
            return asyncio.create_task(first())

        held = service.ask(begin())
        until(lambda: fake.hits == 1)
        for wait, status in [("0.01", 402), ("0", 402), ("soon", 400)]:
            headers = {"Content-Type": "application/json", "x-holdfast-budget-wait": wait}
            ask = Ask(f"{service.url}/chat/completions", json.dumps(body).encode(), headers)
            with pytest.raises(HTTPError) as caught:
                urlopen(ask)
            with caught.value as error:
                assert error.code == status, error.read()

        async def end() -> None:
            held.cancel()
            await asyncio.wait([held])

        service.ask(end())
