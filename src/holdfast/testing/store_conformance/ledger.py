"""The ledger: calls kept as told, budgets that hold, rates, keys, replies."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
import pytest_asyncio

from holdfast.errors import BudgetExceeded, CallMismatch, Refused, StoreError
from holdfast.records import RUN_COMPLETED
from holdfast.records.calls import ProviderAttempt, SpendLimit, VirtualKey
from holdfast.store.base import Store
from holdfast.store.ledger import Begun, CallTotals, Earlier, Ledger, Rate
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    Conformance,
    append,
    begin,
    call_end,
    call_start,
    claimed,
    event,
    until,
)


class LedgerConformance(Conformance):
    """What one process asks of a ledger."""

    @pytest_asyncio.fixture
    async def ledger(self, parts: StoreParts) -> AsyncIterator[Ledger]:
        ledger = parts.ledger()
        yield ledger
        ledger.close()

    # --- calls ---

    async def test_a_call_is_kept_as_it_was_told(self, ledger: Ledger) -> None:
        asked = call_start(
            run_id="run_1", workflow="w", step="s", step_key="0.1", attempt=2, api_key="key_1",
            tags=("a", "b"), prompt='{"x": 1}', key="k", request_hash="h",
        )  # fmt: skip
        assert isinstance(await begin(ledger, asked), Begun)
        begun = await ledger.call("call_1")
        assert begun is not None
        assert (begun.status, begun.end, begun.owner) == ("started", None, ledger.owner)
        tries = (
            ProviderAttempt("p", "m", 0.5, 529, "ProviderUnavailable", "busy", Decimal("0.25")),
            ProviderAttempt("p", "m", 0.25, 200),
        )
        told = call_end(
            provider="p", served="m-1", finish="stop", input_tokens=5, cached_tokens=1,
            cache_write_tokens=2, output_tokens=7, reasoning_tokens=3, estimated=True, cost=9,
            charge=10, charge_tokens=12, prices={"input": "1"}, latency=0.5, first_token=0.25,
            attempts=tries, reply='{"y": 2}',
        )  # fmt: skip
        await ledger.finish("call_1", told)
        call = await ledger.call("call_1")
        assert call is not None
        assert (call.start, call.end, call.status) == (asked, told, "completed")
        assert await ledger.call("call_2") is None

    async def test_the_latest_calls_come_first(self, ledger: Ledger) -> None:
        for number in range(4):
            start = call_start(
                f"call_{number}", started_at=float(number), run_id=f"run_{number % 2}"
            )
            await begin(ledger, start)
        await ledger.finish("call_0", call_end(status="failed"))

        async def ids(**which: str) -> list[str]:
            return [c.start.id for c in await ledger.calls(**which, limit=3)]  # pyright: ignore[reportArgumentType]

        assert await ids() == ["call_3", "call_2", "call_1"]
        assert await ids(run_id="run_0") == ["call_2", "call_0"]
        assert await ids(status="failed") == ["call_0"]
        assert await ids(run_id="other") == []

    async def test_an_end_is_recorded_once(self, ledger: Ledger) -> None:
        await begin(ledger, call_start(), usd=50, tokens=5)
        await ledger.finish("call_1", call_end(charge=30, charge_tokens=3))
        await ledger.finish("call_1", call_end(charge=99, charge_tokens=9, status="failed"))
        spend = await ledger.spend("run:r")
        assert (spend.usd, spend.tokens, spend.calls) == (30, 3, 1)
        assert (spend.reserved_usd, spend.reserved_tokens) == (0, 0)

    async def test_an_end_that_nobody_waits_for_is_seen_by_who_asks_next(
        self, ledger: Ledger
    ) -> None:
        await begin(ledger, call_start(), usd=50)
        ledger.finish_soon("call_1", call_end(charge=30))
        assert (await ledger.spend("run:r")).usd == 30
        call = await ledger.call("call_1")
        assert call is not None and call.status == "completed"

    async def test_the_calls_of_runs_are_summed_up_however_many_they_are(
        self, ledger: Ledger
    ) -> None:
        for n in range(2500):
            start = call_start(f"call_{n}", run_id=f"run_{n % 2}")
            await begin(ledger, start, scopes=[], durable=False)
            told = call_end(input_tokens=3, cached_tokens=1, output_tokens=2, cost=n, charge=n + 7)
            await ledger.finish(f"call_{n}", told, durable=False)
        await begin(ledger, call_start("call_open", run_id="run_0"))
        both = await ledger.totals(["run_0", "run_1"])
        assert (both.calls, both.open, both.unpriced, both.is_complete) == (2501, 1, 0, False)
        assert (both.input_tokens, both.cached_tokens, both.output_tokens) == (7500, 2500, 5000)
        assert (both.tokens, both.cost, both.model) == (12_500, sum(range(2500)), "p/m")
        one = await ledger.totals(["run_1"])
        assert (one.calls, one.usd, one.is_complete) == (1250, Decimal(one.cost) / 10**9, True)
        await ledger.finish("call_open", call_end(cost=None, output_tokens=1))
        part = await ledger.totals(["run_0"])
        assert (part.calls, part.open, part.unpriced, part.usd) == (1251, 0, 1, None)
        assert await ledger.totals(["run_none"]) == await ledger.totals([]) == CallTotals()

    async def test_an_unknown_cost_stays_unknown(self, ledger: Ledger) -> None:
        await begin(ledger, call_start(), usd=None)
        await ledger.finish("call_1", call_end(cost=None))
        call = await ledger.call("call_1")
        assert call is not None and call.end is not None and call.end.cost is None

    async def test_nothing_that_came_from_outside_keeps_a_call_from_ending(
        self, ledger: Ledger
    ) -> None:
        await begin(ledger, call_start(prompt='"\ud83d\ude00"'), usd=5)
        odd = call_end(message="half \ud800, nothing \0", output_tokens=10**30, charge=1)
        await ledger.finish("call_1", odd)
        call = await ledger.call("call_1")
        assert call is not None and call.end is not None
        assert (call.status, call.end.charge) == ("completed", 1)
        assert (call.end.message or "").startswith("half ")
        assert (await ledger.spend("run:r")).reserved_usd == 0

    async def test_a_call_that_need_not_reach_the_disk_is_read_back(self, ledger: Ledger) -> None:
        await begin(ledger, call_start(), durable=False)
        await ledger.finish("call_1", call_end(), durable=False)
        call = await ledger.call("call_1")
        assert call is not None and call.status == "completed"

    # --- budgets ---

    async def test_a_limit_counts_what_is_spent_and_what_is_held(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        begun = await begin(ledger, call_start("call_1"), usd=60)
        assert isinstance(begun, Begun) and begun.limited
        with pytest.raises(BudgetExceeded) as caught:
            await begin(ledger, call_start("call_2"), usd=41)
        assert caught.value.scope == "run:r"
        assert await ledger.call("call_2") is None
        await ledger.finish("call_1", call_end(charge=10))
        await begin(ledger, call_start("call_3"), usd=90)
        with pytest.raises(BudgetExceeded):
            await begin(ledger, call_start("call_4"), usd=1)
        await ledger.set_limit(SpendLimit("run:r"))
        assert isinstance(await begin(ledger, call_start("call_5"), usd=10**9), Begun)

    async def test_a_token_limit_holds_where_the_price_is_unknown(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", tokens=100))
        await begin(ledger, call_start("call_1"), usd=None, tokens=100)
        with pytest.raises(BudgetExceeded, match="tokens"):
            await begin(ledger, call_start("call_2"), usd=None, tokens=1)
        await ledger.set_limit(SpendLimit("run:r", usd=1000))
        with pytest.raises(BudgetExceeded, match="price is unknown"):
            await begin(ledger, call_start("call_3"), usd=None, tokens=1)

    async def test_the_tighter_of_two_limits_counts(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        for limit, needed, fits in ((50, 51, False), (500, 101, False), (80, 80, True)):
            call, given = call_start(f"call_{limit}"), [SpendLimit("run:r", usd=limit)]
            if fits:
                await begin(ledger, call, usd=needed, limits=given)
            else:
                with pytest.raises(BudgetExceeded):
                    await begin(ledger, call, usd=needed, limits=given)

    async def test_a_childs_calls_count_against_all_its_parents(self, ledger: Ledger) -> None:
        await ledger.link("run:r", "run:parent")
        await ledger.link("run:parent", "run:grand")
        await ledger.link("run:grand", "run:r")  # a circle must not hang it
        await ledger.set_limit(SpendLimit("run:grand", usd=100))
        await begin(ledger, call_start("call_1"), usd=60)
        with pytest.raises(BudgetExceeded, match="run:grand"):
            await begin(ledger, call_start("call_2"), usd=60)
        await ledger.finish("call_1", call_end(charge=40))
        assert (await ledger.spend("run:grand")).usd == 40

    async def test_a_hold_can_grow_within_the_limit_only(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        await begin(ledger, call_start(), usd=60)
        await ledger.hold("call_1", usd=100, tokens=0)
        with pytest.raises(BudgetExceeded):
            await ledger.hold("call_1", usd=101, tokens=0)
        assert (await ledger.spend("run:r")).reserved_usd == 100
        await ledger.hold("call_1", usd=10, tokens=0)
        assert (await ledger.spend("run:r")).reserved_usd == 10

    async def test_a_hold_that_grew_is_given_back_in_full(self, ledger: Ledger) -> None:
        await ledger.link("run:r", "run:parent")
        await begin(ledger, call_start(), usd=40, tokens=4)
        await ledger.hold("call_1", usd=90, tokens=9)
        await ledger.finish("call_1", call_end(charge=30, charge_tokens=3))
        for scope in ("run:r", "run:parent"):
            spend = await ledger.spend(scope)
            assert (spend.usd, spend.tokens, spend.calls) == (30, 3, 1)
            assert (spend.reserved_usd, spend.reserved_tokens) == (0, 0)

    async def test_parallel_calls_never_pass_a_limit(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=20))

        async def one(number: int) -> bool:
            try:
                await begin(ledger, call_start(f"call_{number}"), usd=1)
            except BudgetExceeded:
                return False
            await ledger.finish(f"call_{number}", call_end(charge=1))
            return True

        done = await asyncio.gather(*(one(number) for number in range(200)))
        assert sum(done) == 20
        assert (await ledger.spend("run:r")).usd == 20

    async def test_a_call_waits_for_what_another_only_holds(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        await begin(ledger, call_start("call_1"), usd=90)
        waits = asyncio.create_task(begin(ledger, call_start("call_2"), usd=50, wait=600.0))
        with pytest.raises(BudgetExceeded, match="waited"):
            await begin(ledger, call_start("call_3"), usd=50, wait=0.05)
        await ledger.finish("call_1", call_end(charge=10))
        assert isinstance(await waits, Begun)

    async def test_a_call_that_can_never_fit_is_refused_at_once(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        await begin(ledger, call_start("call_1"), usd=10)
        await ledger.finish("call_1", call_end(charge=10))
        with pytest.raises(BudgetExceeded):
            await begin(ledger, call_start("call_2"), usd=91, wait=10**6)

    async def test_who_waits_is_not_overtaken(self, ledger: Ledger) -> None:
        await ledger.set_limit(SpendLimit("run:r", usd=100))
        await begin(ledger, call_start("call_1"), usd=90)
        large = asyncio.create_task(begin(ledger, call_start("call_2"), usd=80, wait=600.0))

        names = (f"call_{number}" for number in itertools.count(3))

        async def is_refused() -> bool:
            name = next(names)
            try:  # it would fit, if nobody stood in line
                await begin(ledger, call_start(name), usd=1)
            except BudgetExceeded:
                return True
            await ledger.finish(name, call_end())
            return False

        await until(is_refused)
        await ledger.finish("call_1", call_end(charge=5))
        assert isinstance(await large, Begun)

    # --- keys of calls, and their replies ---

    async def test_a_key_leads_to_the_earlier_call(self, ledger: Ledger) -> None:
        await begin(ledger, call_start("call_1", key="k", request_hash="h"))
        found = await begin(ledger, call_start("call_2", key="k", request_hash="h"))
        assert isinstance(found, Earlier) and found.call.status == "started"
        with pytest.raises(CallMismatch):
            await begin(ledger, call_start("call_3", key="k", request_hash="other"))
        await ledger.finish("call_1", call_end(replay=b"sealed", finished_at=time.time()))
        found = await begin(ledger, call_start("call_4", key="k", request_hash="h"))
        assert isinstance(found, Earlier) and found.replay == b"sealed"
        assert found.call.start.id == "call_1"

    async def test_the_key_of_a_failed_call_is_free_again(self, ledger: Ledger) -> None:
        await begin(ledger, call_start("call_1", key="k", request_hash="h"))
        await ledger.finish("call_1", call_end(status="failed", error="BadReply"))
        again = await begin(ledger, call_start("call_2", key="k", request_hash="h"))
        assert isinstance(again, Begun)

    async def test_a_superseded_call_gives_its_key_and_what_it_counted_back(
        self, ledger: Ledger
    ) -> None:
        await begin(ledger, call_start("call_1", key="k", request_hash="h"), usd=7, tokens=2)
        await ledger.finish("call_1", call_end(status="unknown", charge=7, charge_tokens=2))
        await ledger.supersede("call_1", release=True)
        spend = await ledger.spend("run:r")
        assert (spend.usd, spend.tokens) == (0, 0)
        again = await begin(ledger, call_start("call_2", key="k", request_hash="h"))
        assert isinstance(again, Begun)

    # --- rates ---

    async def test_a_rate_that_is_used_up_says_how_long_to_wait(self, ledger: Ledger) -> None:
        rate = Rate("p requests", 60, 60.0)
        assert await ledger.take_turn([rate]) == 0.0
        waits = [await ledger.take_turn([Rate("p requests", 60, 30.0)]) for _ in range(2)]
        assert 0 < waits[0] <= 30.0 < waits[1] <= 60.0
        ledger.give_back([Rate("p requests", 60, 60.0)])
        assert await ledger.take_turn([Rate("p requests", 60, 1.0)]) <= 2.0
        assert await ledger.take_turn([Rate("other", 60, 1.0)]) == 0.0

    # --- virtual keys ---

    async def test_keys_are_found_by_hash_and_can_be_revoked(self, ledger: Ledger) -> None:
        key = VirtualKey("key_1", "n", "hash", 1.0, 9.0, None, ("a/*",), "run_1", ("t",))
        await ledger.add_key(key)
        assert await ledger.find_key("hash") == key
        assert await ledger.find_key("other") is None
        assert await ledger.revoke_key("key_1", 5.0)
        assert await ledger.revoke_key("key_1", 6.0)
        assert not await ledger.revoke_key("key_none", 5.0)
        assert [key.revoked_at for key in await ledger.keys()] == [5.0]

    async def test_a_closed_ledger_refuses(self, parts: StoreParts) -> None:
        ledger = parts.ledger()
        ledger.close()
        ledger.close()
        with pytest.raises(StoreError, match="closed"):
            await begin(ledger, call_start())

    # --- what is kept by name ---

    async def test_what_is_kept_by_name_is_there_until_its_time_is_over(
        self, ledger: Ledger
    ) -> None:
        soon = time.time() + 3600
        assert await ledger.kept("a") is None
        assert await ledger.keep("a", b"\x00one", until=soon)
        assert await ledger.kept("a") == b"\x00one"
        assert await ledger.keep("a", b"two", until=soon)
        assert await ledger.kept("a") == b"two"
        assert not await ledger.keep("a", b"three", until=soon, replace=False)
        assert await ledger.kept("a") == b"two"
        assert await ledger.keep("a", b"past", until=time.time() - 1)
        assert await ledger.kept("a") is None
        assert await ledger.keep("a", b"anew", until=soon, replace=False)
        assert await ledger.kept("a") == b"anew"

    async def test_one_of_many_is_the_first_to_keep_a_name(self, ledger: Ledger) -> None:
        soon = time.time() + 3600
        tried = [ledger.keep("b", bytes([n]), until=soon, replace=False) for n in range(20)]
        first = await asyncio.gather(*tried)
        assert first.count(True) == 1
        assert await ledger.kept("b") == bytes([first.index(True)])


class SharedLedgerConformance(Conformance):
    """What several who have the same ledger open ask of it."""

    async def test_limits_keys_and_calls_are_everybodys(self, parts: StoreParts) -> None:
        one, other = parts.ledger(), parts.ledger()
        try:
            assert one.owner != other.owner
            await one.set_limit(SpendLimit("run:r", usd=100))
            await begin(one, call_start("call_1", key="k", request_hash="h"), usd=90)
            with pytest.raises(BudgetExceeded):
                await begin(other, call_start("call_2"), usd=20)
            found = await begin(other, call_start("call_3", key="k", request_hash="h"))
            assert isinstance(found, Earlier) and found.call.owner == one.owner
            assert await other.recover() == [], "it is alive"
            await other.finish("call_1", call_end(charge=5))
            assert (await one.spend("run:r")).usd == 5
        finally:
            one.close()
            other.close()

    async def test_who_came_first_goes_first_in_whatever_process(self, parts: StoreParts) -> None:
        one, other = parts.ledger(), parts.ledger()
        order: list[str] = []
        try:
            await one.set_limit(SpendLimit("run:r", usd=100))
            await begin(one, call_start("call_0"), usd=90)

            async def call(ledger: Ledger, name: str) -> None:
                await begin(ledger, call_start(name), usd=80, wait=600.0)
                order.append(name)
                await ledger.finish(name, call_end(charge=1))

            calls: list[asyncio.Task[None]] = []
            for number, ledger in enumerate((one, other, one), 1):
                calls.append(asyncio.create_task(call(ledger, f"call_{number}")))
                # Written in the order of asking: once this is, the call before it is in line.
                await asyncio.sleep(0)
                await ledger.set_limit(SpendLimit("run:r", usd=100))
            await one.finish("call_0", call_end(charge=1))
            await asyncio.gather(*calls)
            assert order == ["call_1", "call_2", "call_3"]
        finally:
            one.close()
            other.close()

    async def test_a_limit_holds_for_calls_of_two_processes_at_once(
        self, parts: StoreParts
    ) -> None:
        one, other = parts.ledger(), parts.ledger()
        try:
            await one.set_limit(SpendLimit("run:r", usd=20))

            async def call(number: int) -> bool:
                try:
                    await begin((one, other)[number % 2], call_start(f"call_{number}"), usd=1)
                except BudgetExceeded:
                    return False
                return True

            done = await asyncio.gather(*(call(number) for number in range(60)))
            assert sum(done) == 20
            assert (await other.spend("run:r")).reserved_usd == 20
        finally:
            one.close()
            other.close()

    async def test_a_rate_is_shared(self, parts: StoreParts) -> None:
        one, other = parts.ledger(), parts.ledger()
        try:
            assert await one.take_turn([Rate("p", 60, 60.0)]) == 0.0
            assert await other.take_turn([Rate("p", 60, 60.0)]) > 30.0
        finally:
            one.close()
            other.close()

    async def test_expired_replies_are_dropped_with_their_key(self, parts: StoreParts) -> None:
        ledger = parts.ledger(replays_for=0.0)
        await begin(ledger, call_start("call_1", key="k", request_hash="h"))
        await ledger.finish("call_1", call_end(replay=b"x", finished_at=1.0))
        ledger.close()
        again = parts.ledger()
        try:
            found = await begin(again, call_start("call_2", key="k", request_hash="h"))
            assert isinstance(found, Begun)
        finally:
            again.close()

    async def test_what_a_deleted_run_has_spent_stays_spent(
        self, store: Store, parts: StoreParts
    ) -> None:
        claim = await claimed(store)
        ledger = parts.ledger()
        try:
            scopes = ["run:run_1", "tag:t"]
            await begin(ledger, call_start(run_id="run_1", prompt='"p"'), scopes=scopes)
            await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
            with pytest.raises(Refused, match="model call"):
                await store.delete("run_1", 9.0)
            await ledger.finish("call_1", call_end(charge=5, reply='"r"'))
            await store.delete("run_1", 9.0)
            assert (await ledger.spend("tag:t")).usd == 5
            assert (await ledger.spend("run:run_1")).usd == 0
            call = await ledger.call("call_1")
            assert call is not None and call.end is not None
            assert (call.start.run_id, call.start.prompt, call.end.reply) == (None, None, None)
        finally:
            ledger.close()
