"""What operators decide: several keys, routes, cached answers, warnings, teams, hooks."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.support import PRICE, Service, fake_providers, make_gateway
from holdfast.errors import BudgetExceeded, ConfigError, RateLimited, Refused
from holdfast.gateway.calls import generate_text, stream_text, tagged
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.hooks import Alert, Hook
from holdfast.gateway.keys import create_key
from holdfast.gateway.messages import Request, user
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Fail, Say
from holdfast.records.calls import CallEnd, CallStart, SpendLimit
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.testing.providers import FakeProvider

# --- several keys ---------------------------------------------------------------------------------


def key_of(headers: dict[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


async def test_keys_are_used_in_turn_and_a_refused_one_leads_to_the_next() -> None:
    with FakeProvider(lambda request: "hi") as fake:
        gateway = make_gateway(
            providers={"lab": {"base_url": fake.url, "key_envs": ["K1", "K2", "K3"]}},
            environ={"K1": "one-key", "K2": "two-key", "K3": "three-key"},
        )
        for _ in range(6):
            await generate_text("lab/m", prompt="x", gateway=gateway)
        used = Counter(key_of(received.headers) for received in fake.received)
        assert used == {"one-key": 2, "two-key": 2, "three-key": 2}
        await gateway.close()
    script: list[Any] = [Fail(429, retry_after=20), Fail(401), "third"]
    with FakeProvider(script) as fake:
        gateway = make_gateway(
            providers={"lab": {"base_url": fake.url, "key_envs": ["K1", "K2", "K3"]}},
            environ={"K1": "one-key", "K2": "two-key", "K3": "three-key"},
        )
        said = await generate_text("lab/m", prompt="x", gateway=gateway)
        assert said.text == "third", "nobody waited twenty seconds for the first key"
        assert len({key_of(received.headers) for received in fake.received}) == 3
        assert gateway.redact("two-key and three-key") == "[redacted] and [redacted]"
        await gateway.close()


async def test_the_last_keys_error_is_told() -> None:
    with FakeProvider(lambda request: Fail(429, "slow down", retry_after=9e9)) as fake:
        gateway = make_gateway(
            providers={"lab": {"base_url": fake.url, "key_envs": ["K1", "K2"]}},
            environ={"K1": "one-key", "K2": "two-key"},
        )
        with pytest.raises(RateLimited):
            await generate_text("lab/m", prompt="x", gateway=gateway)
        assert fake.hits == 2
        await gateway.close()


# --- routes ---------------------------------------------------------------------------------------


async def test_a_route_shares_its_calls_by_weight_and_falls_back() -> None:
    def answer(request: Request) -> Any:
        return Fail(500) if request.model == "broken" else request.model

    with FakeProvider(answer) as fake:
        models = ["fake-chat/a", "fake-chat/b"]
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"),
            routes={
                "mixed": {"models": models, "weights": [3, 1]},
                "safe": {"models": ["fake-chat/broken", "fake-chat/b"], "weights": [1, 0]},
            },
        )
        firsts = Counter(gateway.routes.candidates("mixed")[0].model for _ in range(2000))
        assert 1300 < firsts["a"] < 1700, "three of four, and chance"
        said = await generate_text("mixed", prompt="x", gateway=gateway)
        assert said.text in ("a", "b")
        assert (await generate_text("safe", prompt="x", gateway=gateway)).text == "b"
        await gateway.close()
    with pytest.raises(ConfigError, match="one weight"):
        GatewayConfig.from_dict({"routes": {"x": {"models": ["a/b"], "weights": [1, 2]}}})


async def test_a_route_by_latency_asks_the_quickest_and_tries_others_now_and_then() -> None:
    gateway = make_gateway(
        providers=fake_providers("http://127.0.0.1:9", "chat"),
        routes={"quick": {"models": ["fake-chat/a", "fake-chat/b"], "by": "latency"}},
    )
    a, b = gateway.routes.candidates("quick")
    for _ in range(5):
        gateway.routes.note(a, 2.0)
        gateway.routes.note(b, 0.1)
    firsts = Counter(gateway.routes.candidates("quick")[0].model for _ in range(400))
    assert firsts["b"] >= 380 and firsts["a"] > 0
    for _ in range(20):
        gateway.routes.note(b, 9.0)
    assert gateway.routes.candidates("quick")[0].model == "a"
    await gateway.close()


async def test_answers_tell_how_quick_a_model_is() -> None:
    with FakeProvider(["hello"]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"),
            routes={"quick": {"models": ["fake-chat/a", "fake-chat/b"], "by": "latency"}},
        )
        await generate_text("fake-chat/a", prompt="x", gateway=gateway)
        assert gateway.routes.candidates("quick")[0].model == "b", "which nobody has asked yet"
        await gateway.close()


# --- cached answers -------------------------------------------------------------------------------


async def test_an_equal_request_gets_the_earlier_answer_if_it_asks_for_it() -> None:
    answers = iter(range(100))
    with FakeProvider(lambda request: f"answer {next(answers)}") as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"), prices={"fake-chat/*": PRICE}
        )
        ask: dict[str, Any] = {"prompt": "x", "gateway": gateway}
        first = await generate_text("fake-chat/m", cache=True, **ask)
        again = await generate_text("fake-chat/m", cache=True, **ask)
        assert (again.text, again.replayed, again.call_id) == ("answer 0", True, first.call_id)
        async with stream_text("fake-chat/m", cache=True, **ask) as stream:
            assert [piece async for piece in stream] == ["answer 0"]
        assert (await generate_text("fake-chat/m", **ask)).text == "answer 1", "who did not ask"
        other = await generate_text("fake-chat/m", cache=True, max_tokens=5, **ask)
        assert other.text == "answer 2", "another request"
        many = [
            generate_text("fake-chat/m", cache=True, prompt="y", gateway=gateway) for _ in "123"
        ]
        assert len({reply.text for reply in await asyncio.gather(*many)}) == 1
        assert fake.hits == 4
        await gateway.close()


def test_a_client_of_the_service_may_ask_for_cached_answers() -> None:
    answers = iter(range(100))
    with FakeProvider(lambda request: f"answer {next(answers)}") as fake:
        with Service(lambda: make_gateway(providers=fake_providers(fake.url, "chat"))) as service:
            client = openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0)
            messages: Any = [{"role": "user", "content": "x"}]

            def ask(model: str = "fake-chat/m", **more: Any) -> Any:
                return client.chat.completions.with_raw_response.create(
                    model=model, messages=messages, **more
                )

            cached = {"extra_headers": {"x-holdfast-cache": "true"}}
            first, again, fresh = ask(**cached), ask(**cached), ask()
            assert again.parse().choices[0].message.content == "answer 0"
            assert again.headers["x-holdfast-replayed"] == "true"
            assert again.headers["x-holdfast-call"] == first.headers["x-holdfast-call"]
            assert fresh.parse().choices[0].message.content == "answer 1"
            other = service.ask(create_key(service.gateway.ledger, name="other"))
            client.close()
            client = openai.OpenAI(base_url=service.url, api_key=other.secret, max_retries=0)
            theirs = ask(**cached).parse().choices[0].message.content
            assert theirs == "answer 2", "another key's answers are not its own"
            client.close()


# --- teams and users ------------------------------------------------------------------------------


async def test_a_team_and_a_user_have_budgets_above_their_keys() -> None:
    gateway = make_gateway(budgets=[{"per": "user", "name": "ann", "tokens": 3000}])
    ledger = gateway.ledger
    await ledger.set_limit(SpendLimit("team:search", tokens=6000))
    made = await create_key(ledger, user="ann", team="search")
    assert made.key.tags == ("user:ann", "team:search")
    with tagged(*made.key.tags):
        await generate_text("scripted/echo", prompt="x", max_tokens=100, gateway=gateway)
        with pytest.raises(BudgetExceeded, match="user:ann"):
            await generate_text("scripted/echo", prompt="x", max_tokens=2500, gateway=gateway)
    with tagged("user:bob", "team:search"), pytest.raises(BudgetExceeded, match="team:search"):
        await generate_text("scripted/echo", prompt="x", max_tokens=5500, gateway=gateway)
    spent = await ledger.spend("team:search")
    assert spent.calls == 1 and spent.tokens > 0
    await gateway.close()


# --- warnings -------------------------------------------------------------------------------------


class Listener(Hook):
    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.ended: list[tuple[CallStart, CallEnd]] = []

    async def after(self, start: CallStart, end: CallEnd) -> None:
        self.ended.append((start, end))
        raise RuntimeError("a hook that fails changes nothing")

    async def alerted(self, alert: Alert) -> None:
        self.alerts.append(alert)


async def test_a_warning_is_given_once_by_whichever_gateway_and_posted(tmp_path: Path) -> None:
    posted: list[Any] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split()[0])
        posted.append(json.loads(await reader.readexactly(size)))
        status = b"500 No" if len(posted) == 1 else b"204 Fine"
        writer.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/alerts"
    script = lambda request: Say("x", usage=Usage(300, 50))  # noqa: E731
    with FakeProvider(script) as fake:
        config = GatewayConfig.from_dict({
            "providers": fake_providers(fake.url, "chat"), "alerts_url": url,
            "budgets": [{"per": "tag", "name": "t", "tokens": 10_000, "warn_at": 0.1}],
        })  # fmt: skip
        listeners = [Listener(), Listener()]
        gateways = [
            Gateway(config, ledger=SqliteLedger(tmp_path / "s.db"), environ={}, hooks=[listener])
            for listener in listeners
        ]
        for number in range(6):
            with tagged("t"):
                await generate_text("fake-chat/m", prompt="x", max_tokens=50,
                                    gateway=gateways[number % 2])  # fmt: skip
        for gateway in gateways:
            await gateway.close()
    server.close()
    [alert] = [alert for listener in listeners for alert in listener.alerts]
    assert (alert.scope, alert.part, alert.limit_tokens) == ("tag:t", Decimal("0.1"), 10_000)
    assert alert.tokens >= 1000
    assert [one["scope"] for one in posted] == ["tag:t", "tag:t"], "a second try after the 500"
    assert len(listeners[0].ended) == 3
    with pytest.raises(ConfigError, match="warn_at"):
        GatewayConfig.from_dict({"budgets": [{"per": "day", "usd": 1, "warn_at": 80}]})


# --- hooks ----------------------------------------------------------------------------------------


class Policy(Hook):
    async def before(self, request: Request, tags: tuple[str, ...]) -> Request:
        words = request.messages[-1].text
        if "forbidden" in words:
            raise Refused("this may not be asked")
        if "4111" in words:
            masked = user(words.replace("4111", "[card]"))
            return replace(request, messages=(*request.messages[:-1], masked))
        return request


async def test_hooks_see_change_and_refuse_the_librarys_calls() -> None:
    listener = Listener()
    script: list[Any] = ["one", "two", Fail(400, "no")]
    with FakeProvider(script) as fake:
        gateway = Gateway(
            GatewayConfig.from_dict({"providers": fake_providers(fake.url, "chat")}),
            ledger=SqliteLedger(":memory:"), environ={}, hooks=[Policy(), listener],
        )  # fmt: skip
        await generate_text("fake-chat/m", prompt="my card is 4111", gateway=gateway)
        assert fake.received[0].body["messages"][0]["content"] == "my card is [card]"
        with pytest.raises(Refused):
            await generate_text("fake-chat/m", prompt="forbidden", gateway=gateway)
        assert fake.hits == 1
        await generate_text("fake-chat/m", prompt="x", gateway=gateway)
        with pytest.raises(Exception, match="no"):
            await generate_text("fake-chat/m", prompt="y", gateway=gateway)
        assert [end.status for _, end in listener.ended] == ["completed", "completed", "failed"]
        [call] = [c for c in await gateway.ledger.calls() if "card" in (c.start.prompt or "")]
        assert "4111" not in (call.start.prompt or "")
        await gateway.close()


def test_hooks_see_change_and_refuse_the_services_calls() -> None:
    with FakeProvider(lambda request: request.messages[-1].text) as fake:

        def make() -> Gateway:
            return Gateway(
                GatewayConfig.from_dict({"providers": fake_providers(fake.url, "chat")}),
                ledger=SqliteLedger(":memory:"), environ={}, hooks=[Policy()],
            )  # fmt: skip

        with Service(make) as service:
            with openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as c:

                def ask(words: str) -> Any:
                    messages: Any = [{"role": "user", "content": words}]
                    said = c.chat.completions.create(model="fake-chat/m", messages=messages)
                    return said.choices[0].message.content

                assert ask("hello") == "hello"
                assert ask("card 4111") == "card [card]"
                with pytest.raises(openai.APIStatusError, match="may not be asked"):
                    ask("forbidden")
            assert fake.hits == 2
            kept = [call.start.prompt for call in service.calls()]
            assert len(kept) == 2 and not any("4111" in (prompt or "") for prompt in kept)
