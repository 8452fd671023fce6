"""What every ledger must do: the SQLite one in a file, and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from holdfast.errors import BudgetExceeded, CallMismatch
from holdfast.gateway.keys import create_key, hash_secret
from holdfast.records.calls import CallEnd, CallStart, ProviderAttempt, SpendLimit
from holdfast.store.ledger import Begun, Earlier, Ledger
from holdfast.store.sqlite.ledger import SqliteLedger


@pytest.fixture(params=["file", "memory"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    path = tmp_path / "store.db" if request.param == "file" else ":memory:"
    ledger = SqliteLedger(path)
    yield ledger
    ledger.close()


def start(id: str = "call_1", **more: object) -> CallStart:
    base = CallStart(id=id, model="p/m", format="chat", started_at=1000.0)
    return base._replace(**more)  # type: ignore[arg-type]


def end(**more: object) -> CallEnd:
    return CallEnd("completed", 1001.0)._replace(**more)  # type: ignore[arg-type]


async def begin(ledger: Ledger, call: CallStart, usd: int | None = 0, tokens: int = 0) -> object:
    return await ledger.begin(call, scopes=["run:r"], usd=usd, tokens=tokens)


async def test_a_call_is_kept_as_it_was_told(ledger: Ledger) -> None:
    asked = start(
        run_id="run_1", workflow="w", step="s", step_key="0.1", attempt=2, api_key="key_1",
        tags=("a", "b"), prompt='{"x": 1}', key="k", request_hash="h",
    )  # fmt: skip
    assert isinstance(await begin(ledger, asked), Begun)
    tries = (
        ProviderAttempt("p", "m", 0.5, 529, "ProviderUnavailable", "busy", Decimal("0.25")),
        ProviderAttempt("p", "m", 0.25, 200),
    )
    told = end(
        provider="p", served="m-1", finish="stop", input_tokens=5, cached_tokens=1,
        cache_write_tokens=2, output_tokens=7, reasoning_tokens=3, estimated=True, cost=9,
        charge=10, charge_tokens=12, prices={"input": "1"}, latency=0.5, first_token=0.25,
        attempts=tries, reply='{"y": 2}',
    )  # fmt: skip
    await ledger.finish("call_1", told)
    call = await ledger.call("call_1")
    assert call is not None
    assert (call.start, call.end, call.status) == (asked, told, "completed")
    assert [c.start.id for c in await ledger.calls(run_id="run_1")] == ["call_1"]
    assert await ledger.calls(run_id="other") == []


async def test_an_end_is_recorded_once(ledger: Ledger) -> None:
    await begin(ledger, start(), usd=50, tokens=5)
    await ledger.finish("call_1", end(charge=30, charge_tokens=3))
    await ledger.finish("call_1", end(charge=99, charge_tokens=9, status="failed"))
    spend = await ledger.spend("run:r")
    assert (spend.usd, spend.tokens, spend.calls) == (30, 3, 1)
    assert (spend.reserved_usd, spend.reserved_tokens) == (0, 0)


async def test_an_unknown_cost_stays_unknown(ledger: Ledger) -> None:
    await begin(ledger, start(), usd=None)
    await ledger.finish("call_1", end(cost=None))
    call = await ledger.call("call_1")
    assert call is not None and call.end is not None and call.end.cost is None


async def test_a_limit_counts_what_is_spent_and_what_is_held(ledger: Ledger) -> None:
    await ledger.set_limit(SpendLimit("run:r", usd=100))
    begun = await begin(ledger, start("call_1"), usd=60)
    assert isinstance(begun, Begun) and begun.limited
    with pytest.raises(BudgetExceeded) as caught:
        await begin(ledger, start("call_2"), usd=41)
    assert caught.value.scope == "run:r"
    assert await ledger.call("call_2") is None
    await ledger.finish("call_1", end(charge=10))
    await begin(ledger, start("call_3"), usd=90)
    with pytest.raises(BudgetExceeded):
        await begin(ledger, start("call_4"), usd=1)


async def test_a_token_limit_holds_where_the_price_is_unknown(ledger: Ledger) -> None:
    await ledger.set_limit(SpendLimit("run:r", tokens=100))
    await begin(ledger, start("call_1"), usd=None, tokens=100)
    with pytest.raises(BudgetExceeded, match="tokens"):
        await begin(ledger, start("call_2"), usd=None, tokens=1)
    await ledger.set_limit(SpendLimit("run:r", usd=1000))
    with pytest.raises(BudgetExceeded, match="price is unknown"):
        await begin(ledger, start("call_3"), usd=None, tokens=1)


async def test_the_tighter_of_two_limits_counts(ledger: Ledger) -> None:
    await ledger.set_limit(SpendLimit("run:r", usd=100))
    for limit, fits in ((50, False), (500, False), (80, True)):
        given = [SpendLimit("run:r", usd=limit)]
        needed = {50: 51, 500: 101, 80: 80}[limit]
        call = start(f"call_{limit}")
        if fits:
            await ledger.begin(call, scopes=["run:r"], limits=given, usd=needed, tokens=0)
        else:
            with pytest.raises(BudgetExceeded):
                await ledger.begin(call, scopes=["run:r"], limits=given, usd=needed, tokens=0)


async def test_a_childs_calls_count_against_all_its_parents(ledger: Ledger) -> None:
    await ledger.link("run:r", "run:parent")
    await ledger.link("run:parent", "run:grand")
    await ledger.link("run:grand", "run:r")  # a circle must not hang it
    await ledger.set_limit(SpendLimit("run:grand", usd=100))
    await begin(ledger, start("call_1"), usd=60)
    with pytest.raises(BudgetExceeded, match="run:grand"):
        await begin(ledger, start("call_2"), usd=60)
    await ledger.finish("call_1", end(charge=40))
    assert (await ledger.spend("run:grand")).usd == 40


async def test_a_hold_can_grow_within_the_limit_only(ledger: Ledger) -> None:
    await ledger.set_limit(SpendLimit("run:r", usd=100))
    await begin(ledger, start(), usd=60)
    await ledger.hold("call_1", usd=100, tokens=0)
    with pytest.raises(BudgetExceeded):
        await ledger.hold("call_1", usd=101, tokens=0)
    assert (await ledger.spend("run:r")).reserved_usd == 100
    await ledger.hold("call_1", usd=10, tokens=0)
    assert (await ledger.spend("run:r")).reserved_usd == 10


async def test_a_hold_that_grew_is_given_back_in_full(ledger: Ledger) -> None:
    await ledger.link("run:r", "run:parent")
    await begin(ledger, start(), usd=40, tokens=4)
    await ledger.hold("call_1", usd=90, tokens=9)
    await ledger.finish("call_1", end(charge=30, charge_tokens=3))
    for scope in ("run:r", "run:parent"):
        spend = await ledger.spend(scope)
        assert (spend.usd, spend.tokens, spend.calls) == (30, 3, 1)
        assert (spend.reserved_usd, spend.reserved_tokens) == (0, 0)


async def test_a_key_leads_to_the_earlier_call(ledger: Ledger) -> None:
    await begin(ledger, start("call_1", key="k", request_hash="h"))
    found = await begin(ledger, start("call_2", key="k", request_hash="h"))
    assert isinstance(found, Earlier) and found.call.status == "started"
    with pytest.raises(CallMismatch):
        await begin(ledger, start("call_3", key="k", request_hash="other"))
    await ledger.finish("call_1", end(replay=b"sealed"))
    found = await begin(ledger, start("call_4", key="k", request_hash="h"))
    assert isinstance(found, Earlier) and found.replay == b"sealed"
    assert found.call.start.id == "call_1"


async def test_the_key_of_a_failed_call_is_free_again(ledger: Ledger) -> None:
    await begin(ledger, start("call_1", key="k", request_hash="h"))
    await ledger.finish("call_1", end(status="failed", error="BadReply"))
    assert isinstance(await begin(ledger, start("call_2", key="k", request_hash="h")), Begun)


async def test_parallel_calls_never_pass_a_limit(ledger: Ledger) -> None:
    await ledger.set_limit(SpendLimit("run:r", usd=20))

    async def one(number: int) -> bool:
        try:
            await begin(ledger, start(f"call_{number}"), usd=1)
        except BudgetExceeded:
            return False
        await ledger.finish(f"call_{number}", end(charge=1))
        return True

    done = await asyncio.gather(*(one(number) for number in range(200)))
    assert sum(done) == 20
    assert (await ledger.spend("run:r")).usd == 20


async def test_keys_are_found_by_hash_and_can_be_revoked(ledger: Ledger) -> None:
    made = await create_key(ledger, name="n", models=["a/*"], usd=Decimal("1.5"), tags=["t"])
    assert await ledger.find_key(hash_secret(made.secret)) == made.key
    assert await ledger.find_key(made.secret) is None
    limit = (await ledger.spend(f"key:{made.key.id}")).limit
    assert limit is not None and limit.usd == 1_500_000_000
    assert await ledger.revoke_key(made.key.id, 5.0)
    assert not await ledger.revoke_key("key_none", 5.0)
    assert [key.revoked_at for key in await ledger.keys()] == [5.0]


async def test_calls_of_a_dead_process_are_settled_by_the_living(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    dead, living = SqliteLedger(path), SqliteLedger(path)
    await dead.set_limit(SpendLimit("run:r", usd=100))
    await begin(dead, start("call_1", key="k", request_hash="h"), usd=70, tokens=7)
    assert await living.recover() == []  # it is alive
    dead._owner.close()  # type: ignore[attr-defined]  # as the kernel does it at its death
    settled = await living.recover()
    assert [(call.start.id, call.status) for call in settled] == [("call_1", "unknown")]
    spend = await living.spend("run:r")
    assert (spend.usd, spend.reserved_usd, spend.calls) == (70, 0, 1)
    found = await begin(living, start("call_2", key="k", request_hash="h"))
    assert isinstance(found, Earlier) and found.call.status == "unknown"
    await living.supersede("call_1")
    assert isinstance(await begin(living, start("call_3", key="k", request_hash="h")), Begun)
    living.close()
    dead._database.close()  # type: ignore[attr-defined]


async def test_expired_replies_are_dropped_with_their_key(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    ledger = SqliteLedger(path, replays_for=0.0)
    await begin(ledger, start("call_1", key="k", request_hash="h"))
    await ledger.finish("call_1", end(replay=b"x", finished_at=1.0))
    ledger.close()
    again = SqliteLedger(path)
    assert isinstance(await begin(again, start("call_2", key="k", request_hash="h")), Begun)
    again.close()
