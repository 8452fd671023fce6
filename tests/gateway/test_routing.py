"""Aliases, fallbacks, the breaker, and pace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.support import fake_providers, make_gateway
from holdfast.errors import (
    AuthRejected,
    BadReply,
    ConfigError,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from holdfast.gateway.call_loop import _wait
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.config import Breaker, GatewayConfig, Retries
from holdfast.gateway.formats.base import retry_after
from holdfast.gateway.limits import Circuit
from holdfast.gateway.providers import resolve_providers
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say, ScriptedModel
from holdfast.store.ledger import Rate
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.store.sqlite.ledger_spend import rate_taken
from holdfast.testing.providers import FakeProvider
from waiting import LIMIT

QUICK = {"attempts": 2, "base": 0.01, "cap": 0.2}


async def ask(gateway: Any, model: str) -> Any:
    return await generate_text(model, prompt="hi", gateway=gateway)


async def test_an_alias_is_tried_in_order() -> None:
    gateway = make_gateway(
        aliases={"best": ["scripted/a", "scripted/b"], "fast": "scripted/b"}, retries=QUICK
    )
    with ScriptedModel("a", [Fail(500), "a"]), ScriptedModel("b", ["b1", "b2"]):
        first, second, third = [await ask(gateway, m) for m in ("best", "best", "fast")]
    assert [reply.text for reply in (first, second, third)] == ["b1", "a", "b2"]
    assert [(a.model, a.error) for a in first.attempts] == [
        ("a", "ProviderUnavailable"),
        ("b", None),
    ]
    assert (first.model, first.served_by) == ("best", "scripted/b")
    await gateway.close()


@pytest.mark.parametrize(
    ("failure", "falls_back"),
    [
        (Fail(429), True), (Fail(500), True), (Fail(529), True), (Fail("connect"), True),
        (Fail("cut"), True), (Fail(401), True), (Fail(404), True), (Fail(400), False),
        (Fail(422), False),
    ],
)  # fmt: skip
async def test_a_fallback_is_for_the_providers_faults_not_the_requests(
    failure: Fail, falls_back: bool
) -> None:
    gateway = make_gateway(fallbacks={"scripted/a": ["scripted/b"]}, retries=QUICK)
    with ScriptedModel("a", [failure] * 2), ScriptedModel("b", ["b"]):
        if falls_back:
            assert (await ask(gateway, "scripted/a")).text == "b"
        else:
            with pytest.raises(RequestRejected):
                await ask(gateway, "scripted/a")
    await gateway.close()


async def test_a_fallback_crosses_formats_with_a_key_of_its_own() -> None:
    from holdfast.session import Caller, CurrentStep, set_caller

    set_caller(Caller(step=CurrentStep("run_1", "w", "s", "0", 1, "idem")))
    with FakeProvider([Fail(500), "from the other"]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url),
            fallbacks={"fake-anthropic/a": ["fake-responses/b"]},
        )
        reply = await ask(gateway, "fake-anthropic/a")
        assert reply.text == "from the other"
        assert [r.format for r in fake.received] == ["anthropic", "responses"]
        keys = [r.headers["Idempotency-Key"] for r in fake.received]
        assert len(set(keys)) == 2
        await gateway.close()


async def test_nothing_falls_back_once_something_was_shown() -> None:
    gateway = make_gateway(fallbacks={"scripted/a": ["scripted/b"]})
    with ScriptedModel("a", [Fail("cut")]), ScriptedModel("b", ["b"]) as other:
        with pytest.raises(BadReply):
            async for _ in stream_text("scripted/a", prompt="hi", gateway=gateway):
                pass
        assert other.requests == []
    await gateway.close()


async def test_providers_without_their_key_are_passed_over() -> None:
    gateway = make_gateway(aliases={"best": ["anthropic/claude-x", "scripted/b"]})
    with ScriptedModel("b", ["b"]):
        assert (await ask(gateway, "best")).text == "b"
    await gateway.close()


async def test_no_credit_is_not_asked_again() -> None:
    from holdfast.testing.providers import Raw

    body = b'{"error": {"message": "pay first", "code": "insufficient_quota"}}'
    with FakeProvider([Raw([body], status=429), "never"]) as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat"), retries=QUICK)
        with pytest.raises(RateLimited, match="pay first"):
            await ask(gateway, "fake-chat/m")
        assert fake.hits == 1
        await gateway.close()


async def test_a_wrong_key_is_said_without_showing_it() -> None:
    with FakeProvider(["x"], key="right-key-value") as fake:
        providers = fake_providers(fake.url, "chat", key_env="FAKE_KEY")
        wrong = make_gateway(environ={"FAKE_KEY": "wrong-key-value"}, providers=providers)
        with pytest.raises(AuthRejected) as caught:
            await ask(wrong, "fake-chat/m")
        assert "wrong-key-value" not in str(caught.value) and "[redacted]" in str(caught.value)
        (call,) = await wrong.ledger.calls()
        assert call.end is not None and "wrong-key-value" not in repr(call)
        right = make_gateway(environ={"FAKE_KEY": "right-key-value"}, providers=providers)
        assert (await ask(right, "fake-chat/m")).text == "x"
        await wrong.close()
        await right.close()


# --- the breaker -------------------------------------------------------------------------------


async def test_a_provider_that_keeps_failing_is_left_alone_for_a_while() -> None:
    with FakeProvider([*[Fail(500)] * 3, "back"]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"), breaker={"failures": 3, "open_for": 3}
        )
        for _ in range(3):
            with pytest.raises(ProviderUnavailable):
                await ask(gateway, "fake-chat/m")
        with pytest.raises(ProviderUnavailable, match="left alone"):
            await ask(gateway, "fake-chat/m")
        assert fake.hits == 3
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            try:
                reply = await ask(gateway, "fake-chat/m")
                break
            except ProviderUnavailable:
                await asyncio.sleep(0.02)
        assert reply.text == "back"
        assert fake.hits == 4
        await gateway.close()


def test_an_open_circuit_lets_one_call_try() -> None:
    now = 0.0
    circuit = Circuit("p", Breaker(failures=2, open_for=10), lambda: now)
    for _ in range(2):
        circuit.enter()
        circuit.failed("no answer")
    with pytest.raises(ProviderUnavailable):
        circuit.enter()
    now = 10.5
    circuit.enter()
    with pytest.raises(ProviderUnavailable):
        circuit.enter()  # one is enough to find out
    circuit.failed("no answer")
    with pytest.raises(ProviderUnavailable):
        circuit.enter()
    now = 21.0
    circuit.enter()
    circuit.succeeded()
    circuit.enter()
    assert not circuit.is_open


# --- hedging -----------------------------------------------------------------------------------


def hedging(**more: Any) -> Any:
    return make_gateway(
        fallbacks={"scripted/a": ["scripted/b"]}, hedge_after=0.05, retries=QUICK,
        prices={"scripted/*": {"input": 0, "output": 1000}}, **more,
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_answer_is_hedged_and_the_first_to_begin_wins(stream: bool) -> None:
    gateway = hedging()
    with (
        ScriptedModel("a", [Fail("hang") if stream else Say("slow", delay=120)]) as slow,
        ScriptedModel("b", [Say("quick", usage=Usage(1, 7))]),
    ):
        began = time.monotonic()
        if stream:
            reply = await stream_text(
                "scripted/a", prompt="hi", max_tokens=100, gateway=gateway
            ).reply()
        else:
            reply = await generate_text("scripted/a", prompt="hi", max_tokens=100, gateway=gateway)
        assert time.monotonic() - began < 60
    assert (reply.text, reply.served_by, len(slow.requests)) == ("quick", "scripted/b", 1)
    (call,) = await gateway.ledger.calls()
    assert call.status == "completed"
    # The winner's 7 tokens, and all 100 of the one that was stopped.
    assert (call.end.cost, call.end.charge) == (7_000_000, 107_000_000)
    spend = await gateway.ledger.spend(f"day:{time.strftime('%Y-%m-%d', time.gmtime())}")
    assert (spend.usd, spend.reserved_usd) == (107_000_000, 0)
    await gateway.close()


async def test_a_quick_answer_is_not_hedged() -> None:
    gateway = hedging()
    with ScriptedModel("a", ["at once"]), ScriptedModel("b", ["never"]) as other:
        assert (await ask(gateway, "scripted/a")).text == "at once"
        assert other.requests == []
    await gateway.close()


async def test_a_first_that_fails_leaves_it_to_the_second_and_the_other_way_round() -> None:
    gateway = hedging()
    with ScriptedModel("a", [Fail(500)]), ScriptedModel("b", ["b"]):
        assert (await ask(gateway, "scripted/a")).text == "b"
    with ScriptedModel("a", [Say("a after all", delay=0.1)]), ScriptedModel("b", [Fail(500)]):
        assert (await ask(gateway, "scripted/a")).text == "a after all"
    with ScriptedModel("a", [Fail(400)]), ScriptedModel("b", ["b"]), pytest.raises(RequestRejected):
        await ask(gateway, "scripted/a")
    await gateway.close()


async def test_a_hedge_that_could_pass_the_budget_is_not_made() -> None:
    gateway = hedging(budgets=[{"per": "day", "usd": "0.15"}])
    with (
        ScriptedModel("a", [Say("slow", delay=0.05)]),
        ScriptedModel("b", ["quick"]) as other,
    ):
        reply = await generate_text("scripted/a", prompt="hi", max_tokens=100, gateway=gateway)
        assert (reply.text, other.requests) == ("slow", [])
    await gateway.close()


def test_waits_between_tries_grow_to_their_cap_and_never_fall_together() -> None:
    retries = Retries(attempts=9, base=0.5, cap=4)
    error = RateLimited("busy", status=429)
    for number, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (8, 4.0)):
        waits = [_wait(error, number, retries) for _ in range(50)]
        assert all(wait is not None and longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 40
    told = RateLimited("busy", status=429, retry_after=2)
    assert len({_wait(told, 1, retries) for _ in range(50)}) > 40
    assert all(2 <= (_wait(told, 1, retries) or 0) <= 2.125 for _ in range(50))
    assert _wait(error, 9, retries) is None


# --- pace --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 30)), max_size=60))
def test_no_minute_sees_more_than_its_share_and_the_burst(calls: list[tuple[float, float]]) -> None:
    now, level = 0.0, 60.0
    done: list[tuple[float, float]] = []
    for pause, amount in calls:
        now += pause
        level, wait = rate_taken(level, pause, Rate("", 60, amount))
        done.append((now + wait, amount))
    for start, _ in done:
        within = sum(amount for at, amount in done if start <= at < start + 60)
        assert within <= 60 + 60 + 30 + 1e-6


async def test_calls_over_the_rate_wait_instead_of_failing() -> None:
    with FakeProvider(lambda _: "x") as fake:
        providers = fake_providers(fake.url, "chat", rpm=600)
        gateway = make_gateway(providers=providers)
        await gateway.ledger.take_turn([Rate("fake-chat requests", 600, 598)])
        began = time.monotonic()
        await asyncio.gather(*(ask(gateway, "fake-chat/m") for _ in range(8)))
        assert time.monotonic() - began >= 0.5  # six had to wait, a tenth of a second each
        assert fake.hits == 8
        await gateway.close()


async def test_processes_that_share_a_store_share_its_rates(tmp_path: Path) -> None:
    here, there = SqliteLedger(tmp_path / "s.db"), SqliteLedger(tmp_path / "s.db")
    rates = [Rate("p requests", 60, 40), Rate("p tokens", 6000, 100)]
    began = time.time()
    assert await here.take_turn(rates) == 0
    wait = await there.take_turn(rates)
    passed = time.time() - began
    assert 20 - passed - 0.01 <= wait <= 20  # twenty too many, at one a second
    assert await here.take_turn([Rate("q requests", 60, 40)]) == 0
    there.give_back([rates[0]])
    await there.calls()  # behind what was given back, on the same thread
    assert await here.take_turn([Rate("p requests", 60, 1)]) == 0
    here.close()
    there.close()


async def test_what_a_call_does_not_use_is_given_back() -> None:
    with FakeProvider(lambda _: "x") as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat", tpm=100_000))
        await generate_text("fake-chat/m", prompt="hi", max_tokens=99_000, gateway=gateway)
        assert await gateway.ledger.take_turn([Rate("fake-chat tokens", 100_000, 90_000)]) == 0
        waiting = asyncio.create_task(
            generate_text("fake-chat/m", prompt="hi", max_tokens=90_000, gateway=gateway)
        )
        while not (await gateway.ledger.calls(status="started")):
            await asyncio.sleep(0.01)
        taken_by_it = await gateway.ledger.take_turn([Rate("fake-chat tokens", 100_000, 1)])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        left = await gateway.ledger.take_turn([Rate("fake-chat tokens", 100_000, 1)])
        assert left < taken_by_it and fake.hits == 1
        await gateway.close()


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"alias": {}}, "did you mean 'aliases'"),
        ({"timeouts": {"conect": 1}}, "did you mean 'connect'"),
        ({"timeouts": {"total": "soon"}}, "no duration"),
        ({"budgets": [{"per": "dai", "usd": 1}]}, "did you mean 'day'"),
        ({"budgets": [{"per": "day"}]}, "needs usd or tokens"),
        ({"budgets": [{"usd": 1}]}, "lacks per"),
        ({"prices": {"a/b": {"input": "much", "output": 1}}}, "should be an amount"),
        ({"prices": {"a/b": {"input": -1, "output": 1}}}, "0 or more"),
        ({"providers": {"x": {"formats": ["chatt"]}}}, "did you mean 'chat'"),
        ({"providers": []}, "should be a table"),
        ({"retries": {"attempts": "3"}}, "of type int"),
        ({"retries": {"attempts": True}}, "of type int"),
        ({"keep_content": "yes"}, "of type bool"),
    ],
)
def test_a_wrong_setting_is_named(data: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GatewayConfig.from_dict(data)
    assert says in str(caught.value)


def test_settings_are_typed() -> None:
    config = GatewayConfig.from_dict(
        {"timeouts": {"total": "5m"}, "aliases": {"a": "x/y", "b": ["x/y", "z/w"]},
         "prices": {"x/y": {"input": 0.1, "output": "0.25"}}}
    )  # fmt: skip
    assert config.timeouts.total == 300.0
    assert config.aliases == {"a": ("x/y",), "b": ("x/y", "z/w")}
    assert str(config.prices["x/y"].input) == "0.1"


@pytest.mark.parametrize(
    ("environ", "name", "base"),
    [
        ({"OPENAI_BASE_URL": "http://proxy/v1/"}, "openai", "http://proxy/v1"),
        ({"ANTHROPIC_BASE_URL": "http://proxy"}, "anthropic", "http://proxy/v1"),
        ({"ANTHROPIC_BASE_URL": "http://proxy/v1"}, "anthropic", "http://proxy/v1"),
        ({"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"}, "azure",
         "https://r.openai.azure.com/openai/v1"),
        ({"HOLDFAST_GATEWAY_URL": "http://gw:1"}, "holdfast", "http://gw:1/v1"),
        ({}, "openai", "https://api.openai.com/v1"),
    ],
)  # fmt: skip
def test_the_standard_variables_work(environ: dict[str, str], name: str, base: str) -> None:
    assert resolve_providers(GatewayConfig(), environ)[name].base_url == base


def test_keys_come_from_the_environment_and_are_not_shown() -> None:
    environ = {"GOOGLE_API_KEY": "g", "ANTHROPIC_API_KEY": "secret-a"}
    providers = resolve_providers(GatewayConfig(), environ)
    assert providers["google"].key == "g"
    assert providers["anthropic"].key == "secret-a"
    assert "secret-a" not in repr(providers["anthropic"])


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://u:p@h/v1", "http://h/v1?k=1", "file:///e"])
def test_a_wrong_base_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        resolve_providers(GatewayConfig.from_dict({"providers": {"mine": {"base_url": url}}}), {})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0), ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "later"}, None), ({"retry-after": "-1"}, None), ({}, None),
    ],
)  # fmt: skip
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: Any) -> None:
    assert retry_after(headers, now=60.0) == seconds
