"""Budgets are hard: across parallel calls, retries, fallbacks, processes and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.support import fake_providers, make_gateway
from holdfast.errors import BadReply, BudgetExceeded, ProviderUnavailable
from holdfast.gateway.calls import generate_text, stream_text, tagged
from holdfast.gateway.config import Budget, ModelPrice
from holdfast.gateway.messages import Request
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import KNOWN, Provider
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.records.calls import SpendLimit
from holdfast.session import Caller, CurrentStep, set_caller
from holdfast.store import opener
from holdfast.testing.providers import FakeProvider
from waiting import until

NANO = 10**9
WORKER = Path(__file__).with_name("budget_worker.py")


def full(request: Request) -> Say:
    """The worst case: as many tokens as were asked for."""
    return Say("x", usage=Usage(10, request.max_tokens or 100), delay=0.01)


def priced(url: str, **more: Any) -> dict[str, Any]:
    prices = {"fake-chat/*": {"input": 0, "output": 1000}}
    return {"providers": fake_providers(url, "chat"), "prices": prices, **more}


def in_run(run: str, **more: Any) -> None:
    fields = {"workflow": "w", "step": "s", "key": "0", "attempt": 1, "idempotency_key": run}
    set_caller(Caller(step=CurrentStep(run_id=run, **{**fields, **more})))


async def test_200_parallel_calls_against_room_for_20() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=[{"per": "run", "usd": 2}]))
        in_run("run_1")

        async def one() -> bool:
            try:
                await generate_text("fake-chat/m", prompt="hi", max_tokens=100, gateway=gateway)
            except BudgetExceeded:
                return False
            return True

        done = await asyncio.gather(*(one() for _ in range(200)))
        spend = await gateway.ledger.spend("run:run_1")
        assert sum(done) == fake.hits == 20
        assert (spend.usd, spend.reserved_usd) == (2 * NANO, 0)
        await gateway.close()


def test_processes_share_a_budget(tmp_path: Path) -> None:
    with FakeProvider(full) as fake:
        workers = [worker(fake.url, 100, tmp_path / "store.db") for _ in range(2)]
        told = [json.loads(one.communicate()[0]) for one in workers]
        assert sum(one["done"] for one in told) == fake.hits == 20
        assert sum(one["refused"] for one in told) == 180


def test_kill_9_leaves_no_room_lost_and_none_too_much(tmp_path: Path) -> None:
    kill_9_leaves_no_room_lost_and_none_too_much(tmp_path / "store.db")


def kill_9_leaves_no_room_lost_and_none_too_much(store: Path | str) -> None:
    """Killed with calls in flight: they count in full, and whoever comes next settles them."""

    def slow(request: Request) -> Say:
        return Say("x", usage=Usage(10, 100), delay=60)

    with FakeProvider(slow) as fake:
        killed = worker(fake.url, 5, store)
        until(lambda: fake.hits == 5)
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
    with FakeProvider(full) as fake:
        told = json.loads(worker(fake.url, 50, store).communicate()[0])
        assert told == {"done": 15, "refused": 35}
        assert fake.hits == 15

    async def look() -> None:
        ledger = opener.ledger(store)
        spend = await ledger.spend("run:run_1")
        assert (spend.usd, spend.reserved_usd, spend.calls) == (2 * NANO, 0, 20)
        lost = await ledger.calls(status="unknown")
        assert [call.end.charge for call in lost if call.end] == [NANO // 10] * 5
        ledger.close()

    asyncio.run(look())


def worker(url: str, number: int, store: Path | str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), url, str(number)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "HOLDFAST_STORE": str(store)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "scope"),
    [
        ({"per": "run"}, "run:run_1"),
        ({"per": "workflow", "name": "w"}, "workflow:w"),
        ({"per": "tag", "name": "nightly"}, "tag:nightly"),
        ({"per": "tag", "name": "nightly", "period": "day"}, "tag:nightly@"),
        ({"per": "day"}, "day:"),
    ],
)
async def test_each_kind_of_budget_refuses(budget: dict[str, Any], scope: str) -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=[{**budget, "usd": "0.15"}]))
        in_run("run_1")
        with tagged("nightly"):
            await generate_text("fake-chat/m", prompt="a", max_tokens=100, gateway=gateway)
            with pytest.raises(BudgetExceeded) as caught:
                await generate_text("fake-chat/m", prompt="b", max_tokens=100, gateway=gateway)
        assert caught.value.scope.startswith(scope)
        assert caught.value.limit == Decimal("0.15")
        assert caught.value.spent == Decimal("0.1")
        assert fake.hits == 1
        await gateway.close()


async def test_another_run_workflow_or_tag_is_not_limited() -> None:
    budgets = [
        {"per": "tag", "name": "other", "usd": 0},
        {"per": "workflow", "name": "x", "usd": 0},
    ]
    with FakeProvider(full) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=budgets))
        in_run("run_1")
        await generate_text("fake-chat/m", prompt="a", max_tokens=100, gateway=gateway)
        await gateway.close()


async def test_output_is_capped_where_a_budget_needs_it() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(
            **priced(fake.url, budgets=[{"per": "day", "usd": 1}], default_max_tokens=500)
        )
        await generate_text("fake-chat/m", prompt="a", gateway=gateway)
        assert fake.received[0].body["max_tokens"] == 500
        with pytest.raises(BudgetExceeded):
            await generate_text("fake-chat/m", prompt="b", max_tokens=501, gateway=gateway)
        await gateway.close()


async def test_without_a_budget_nothing_is_capped() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(**priced(fake.url))
        await generate_text("fake-chat/m", prompt="a", gateway=gateway)
        assert "max_tokens" not in fake.received[0].body
        await gateway.close()


async def test_what_failed_after_it_may_have_been_bought_counts_in_full() -> None:
    with FakeProvider([Fail("cut"), Fail(500), "fine"]) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=[{"per": "day", "usd": 10}]))
        with pytest.raises(BadReply):
            async with stream_text(
                "fake-chat/m", prompt="a", max_tokens=100, gateway=gateway
            ) as stream:
                [piece async for piece in stream]
        with pytest.raises(ProviderUnavailable):
            await generate_text("fake-chat/m", prompt="b", max_tokens=100, gateway=gateway)
        calls = await gateway.ledger.calls()
        failed, cut = calls[0].end, calls[1].end
        assert failed is not None and cut is not None
        assert (failed.charge, failed.cost) == (0, 0)  # an error status is not billed
        assert cut.charge == NANO // 10
        assert cut.estimated and cut.output_tokens > 0
        await gateway.close()


async def test_a_fallback_is_held_on_top_of_what_failed() -> None:
    with FakeProvider([Fail("cut", after=4), "fine"]) as fake:
        config = priced(fake.url, fallbacks={"fake-chat/a": ["fake-chat/b"]})
        config["budgets"] = [{"per": "day", "usd": "0.15"}]
        gateway = make_gateway(**config)
        with pytest.raises(BudgetExceeded):
            await generate_text("fake-chat/a", prompt="a", max_tokens=100, gateway=gateway)
        assert fake.hits == 1
        await gateway.close()


async def test_a_dollar_budget_refuses_a_model_of_unknown_price() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"), budgets=[{"per": "day", "usd": 1}]
        )
        with pytest.raises(BudgetExceeded, match="price is unknown"):
            await generate_text("fake-chat/m", prompt="a", gateway=gateway)
        assert fake.hits == 0
        await gateway.close()


async def test_an_unknown_price_is_unknown_not_free() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat"))
        reply = await generate_text("fake-chat/m", prompt="a", gateway=gateway)
        assert reply.cost is None
        await gateway.close()


async def test_limits_set_in_the_store_hold_too() -> None:
    with FakeProvider(full) as fake:
        gateway = make_gateway(**priced(fake.url))
        await gateway.ledger.set_limit(SpendLimit("run:run_1", usd=NANO // 20))
        in_run("run_1")
        with pytest.raises(BudgetExceeded):
            await generate_text("fake-chat/m", prompt="a", max_tokens=100, gateway=gateway)
        await gateway.close()


# --- prices ------------------------------------------------------------------------------------


def test_known_models_have_prices_dotted_and_dashed() -> None:
    book = PriceBook({})
    for provider, model in [
        ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-sonnet-4.5"),
        ("anthropic", "claude-opus-4-1-20250805"), ("openai", "gpt-4o"), ("openai", "gpt-5-mini"),
        ("google", "gemini-2.5-pro"), ("groq", "llama-3.3-70b-versatile"),
        ("deepseek", "deepseek-chat"), ("mistral", "mistral-large-latest"), ("xai", "grok-4"),
    ]:  # fmt: skip
        prices = book.find(KNOWN[provider], model)
        assert prices is not None, (provider, model)
        assert prices.cost(Usage(1_000_000, 0)) > 0
        assert prices.source.startswith("genai-prices")


def test_prices_agree_with_the_library() -> None:
    import genai_prices

    book = PriceBook({})
    for provider, model, usage in [
        ("anthropic", "claude-sonnet-4-5", Usage(150_000, 2000, cached=40_000, cache_write=10_000)),
        ("anthropic", "claude-sonnet-4-5", Usage(250_000, 2000)),
        ("google", "gemini-2.5-pro", Usage(300_000, 5000, cached=100_000)),
        ("openai", "gpt-4o", Usage(10_000, 500, cached=5000)),
    ]:
        prices = book.find(KNOWN[provider], model)
        assert prices is not None
        theirs = genai_prices.calc_price(
            genai_prices.Usage(
                input_tokens=usage.input, output_tokens=usage.output,
                cache_read_tokens=usage.cached, cache_write_tokens=usage.cache_write,
            ),
            model, provider_id=provider,
        )  # fmt: skip
        assert prices.cost(usage) == int(theirs.total_price * NANO)


async def test_each_row_keeps_its_unit_prices_and_where_they_are_from() -> None:
    with FakeProvider(lambda _: "x") as fake:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.url}
        gateway = make_gateway(environ=environ)
        await generate_text("openai/gpt-4o-mini", prompt="hi", gateway=gateway)
        (call,) = await gateway.ledger.calls()
        await gateway.close()
    assert call.end is not None and call.end.prices is not None
    assert Decimal(call.end.prices["input"]) == Decimal("0.15")
    assert call.end.prices["source"] == f"genai-prices {version('genai-prices')}"


def test_a_configured_price_wins() -> None:
    book = PriceBook({"openai/gpt-4o": ModelPrice(Decimal(7), Decimal(8))})
    prices = book.find(KNOWN["openai"], "gpt-4o")
    assert prices is not None
    assert prices.cost(Usage(1_000_000, 1_000_000)) == 15 * NANO
    assert prices.source == "config"
    assert book.find(Provider("x", None), "m") is None


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_no_usage_within_the_bound_costs_more_than_the_worst_case(
    total: int, output: int, cached: int, written: int
) -> None:
    cached = min(cached, total)
    written = min(written, total - cached)
    for provider, model in [("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-pro")]:
        prices = PriceBook({}).find(KNOWN[provider], model)
        assert prices is not None
        usage = Usage(total, output, cached=cached, cache_write=written, cache_write_1h=written)
        assert prices.cost(usage) <= prices.worst(total, output)


def test_a_budget_needs_an_amount() -> None:
    from holdfast.errors import ConfigError

    with pytest.raises(ConfigError):
        Budget(per="day")


async def test_a_call_cancelled_at_any_moment_leaves_no_row_open_and_no_room_held() -> None:
    with FakeProvider([Fail(400, "no")] * 60) as fake:
        gateway = make_gateway(**priced(fake.url, budgets=[{"per": "day", "usd": 100}]))
        for turns in range(60):
            call = asyncio.create_task(
                generate_text("fake-chat/m", prompt="x", max_tokens=5, gateway=gateway)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled() or call.exception() is not None
        calls = await gateway.ledger.calls(limit=100)
        assert calls, "some must have begun"
        assert {c.status for c in calls} <= {"failed", "interrupted"}
        await gateway.close()
