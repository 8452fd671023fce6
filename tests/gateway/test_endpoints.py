"""Embeddings, token counts and single models, by the stock clients through the service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import anthropic
import openai
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.canonical_json import recorded_reply, recorded_request
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import KNOWN
from holdfast.records.calls import NANO
from holdfast.testing.providers import FakeProvider

PRICES = {"fake-chat/embedder": {"input": "0.5", "output": 0}}


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider([]) as provider:
        yield provider


def service(fake: FakeProvider, **config: Any) -> Service:
    providers = fake_providers(fake.url)
    return Service(lambda: make_gateway(providers=providers, prices=PRICES, **config))


def calls(service: Service) -> list[Any]:
    ledger = service.gateway.ledger
    return asyncio.run_coroutine_threadsafe(ledger.calls(limit=10), service._loop).result(20)


def test_embeddings_pass_through_with_record_and_price(fake: FakeProvider) -> None:
    with service(fake) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        found = client.embeddings.create(model="fake-chat/embedder", input=["hello", "hallo you"])
        # The client asks for base64 by itself; another encoding goes through as well.
        plain = client.embeddings.create(
            model="fake-chat/embedder", input="hello", encoding_format="float"
        )
        [second, first] = calls(served)
    assert [len(one.embedding) for one in found.data] == [8, 8]
    assert math.isclose(found.data[0].embedding[0], ord("h") / 255, rel_tol=1e-6)
    assert plain.data[0].embedding[0] == ord("h") / 255
    assert fake.received[0].body["model"] == "embedder"
    assert (first.start.format, first.status) == ("embeddings", "completed")
    tokens = found.usage.prompt_tokens
    assert (first.end.input_tokens, first.end.output_tokens) == (tokens, 0)
    assert Decimal(first.end.cost) / NANO == tokens * Decimal("0.5") / 10**6
    assert second.end.input_tokens == plain.usage.prompt_tokens
    assert recorded_request(first) is None and recorded_reply(first) is None


def test_tokens_are_counted_by_the_provider_for_nothing(fake: FakeProvider) -> None:
    with service(fake, budgets=[{"per": "day", "tokens": 10}]) as served:
        client = anthropic.Anthropic(
            base_url=served.anthropic_url, api_key=served.secret, max_retries=0
        )
        counted = client.messages.count_tokens(
            model="fake-anthropic/m", messages=[{"role": "user", "content": "How many? " * 20}]
        )
        [call] = calls(served)
    assert counted.input_tokens > 10
    assert (call.start.format, call.status) == ("count_tokens", "completed")
    assert (call.end.input_tokens, call.end.cost, call.end.charge_tokens) == (0, 0, 0)
    assert fake.received[0].headers["anthropic-version"]


def test_a_budget_holds_for_embeddings(fake: FakeProvider) -> None:
    with service(fake, budgets=[{"per": "day", "tokens": 1200}]) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        client.embeddings.create(model="fake-chat/embedder", input="short")
        with pytest.raises(openai.APIStatusError) as caught:
            client.embeddings.create(
                model="fake-chat/embedder", input="x" * 4000,
                extra_headers={"x-holdfast-budget-wait": "0"},
            )  # fmt: skip
    assert caught.value.status_code == 402 and fake.hits == 1


def test_an_embedding_with_a_key_is_had_again(fake: FakeProvider) -> None:
    with service(fake) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        again = {"Idempotency-Key": "once"}
        for _ in range(2):
            found = client.embeddings.create(
                model="fake-chat/embedder", input="hello", extra_headers=again
            )
            assert len(found.data) == 1
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(
                model="fake-chat/embedder", messages=[{"role": "user", "content": "hello"}],
                extra_headers=again,
            )  # fmt: skip
    assert fake.hits == 1 and caught.value.status_code == 422


def test_what_a_provider_refuses_is_told_in_the_clients_format() -> None:
    with FakeProvider([], key="another") as fake, service(fake) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        with pytest.raises(openai.APIStatusError, match="no such key") as caught:
            client.embeddings.create(model="fake-chat/embedder", input="hello")
        [call] = calls(served)
    assert caught.value.status_code == 502
    assert call.status == "failed" and not call.end.charge_tokens


@pytest.mark.parametrize("model", ["scripted/echo", "fake-anthropic/m"])
def test_a_provider_that_has_none_is_named(fake: FakeProvider, model: str) -> None:
    with service(fake) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        with pytest.raises(openai.BadRequestError, match="has no embeddings"):
            client.embeddings.create(model=model, input="hello")
    assert not fake.hits


def test_one_model_can_be_asked_for(fake: FakeProvider) -> None:
    with service(fake) as served:
        client = openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0)
        assert client.models.retrieve("fake-chat/embedder").owned_by == "fake-chat"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nobody/knows-it")


def test_embeddings_have_a_price_without_one_for_output() -> None:
    prices = PriceBook({}).find(KNOWN["openai"], "text-embedding-3-small")
    assert prices is not None and prices.rates.input > 0 == prices.rates.output
