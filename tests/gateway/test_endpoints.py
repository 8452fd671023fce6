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


# --- pictures, sound, judgements ------------------------------------------------------------------


@pytest.fixture
def openai_service(fake: FakeProvider) -> Iterator[Service]:
    def make() -> Any:
        return make_gateway(
            providers={"openai": {"base_url": fake.url}}, environ={"OPENAI_API_KEY": "k"}
        )

    with Service(make) as served:
        yield served


def test_pictures_sound_and_judgements_pass_through_with_their_price(
    fake: FakeProvider, openai_service: Service
) -> None:
    served = openai_service
    with openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0) as client:
        judged = client.moderations.create(input="hello")
        assert not judged.results[0].flagged
        drawn = client.images.generate(model="openai/gpt-image-1", prompt="a cat", n=2)
        assert drawn.data is not None and len(drawn.data) == 2
        edited = client.images.edit(
            model="openai/gpt-image-1", image=("c.png", b"png bytes"), prompt="a hat"
        )
        assert edited.data is not None
        spoken = client.audio.speech.create(model="openai/tts-1", voice="alloy", input="hello you")
        assert spoken.read() == b"ID3hello you"
        sound = ("a.wav", b"RIFF\r\n--x\r\n\0binary")
        heard = client.audio.transcriptions.create(model="openai/whisper-1", file=sound)
        assert heard.text == "hello"
    assert [one.body.get("model") for one in fake.received] == [
        "omni-moderation-latest", "gpt-image-1", "gpt-image-1", "tts-1", "whisper-1",
    ] or fake.received[0].body.get("model") is None  # fmt: skip
    assert fake.received[2].body["prompt"] == "a hat"
    found = list(reversed(calls(served)))
    assert [call.start.format for call in found] == [
        "moderations", "images", "images", "speech", "transcriptions",
    ]  # fmt: skip
    assert all(call.status == "completed" for call in found)
    costs = [Decimal(call.end.cost) / NANO for call in found]
    picture = (10 * Decimal(5) + 100 * Decimal(40)) / 10**6
    letters, seconds = 9 * Decimal(15) / 10**6, 90 * Decimal("0.36") / 3600
    assert costs == [0, picture, picture, letters, seconds]


def test_what_nothing_bounds_is_refused_under_a_budget(fake: FakeProvider) -> None:
    config: Any = {"budgets": [{"per": "day", "tokens": 100_000}]}
    with service(fake, **config) as served:
        with openai.OpenAI(base_url=served.url, api_key=served.secret, max_retries=0) as client:
            with pytest.raises(openai.APIStatusError, match="nothing bounds"):
                client.images.generate(model="fake-chat/m", prompt="a cat")
            client.images.generate(
                model="fake-chat/m",
                prompt="a cat",
                extra_headers={"x-holdfast-input-bound": "5000"},
            )
    assert fake.hits == 1


def test_a_broken_form_is_refused(fake: FakeProvider) -> None:
    import httpx2

    with service(fake) as served:
        headers = {"Authorization": f"Bearer {served.secret}"}
        for kind, body in (
            ("multipart/form-data", b"x"),
            ("multipart/form-data; boundary=b", b"no boundary here"),
            ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data"),
            ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n--b--"),
        ):
            said = httpx2.post(f"{served.url}/audio/transcriptions", content=body,
                               headers={**headers, "Content-Type": kind})  # fmt: skip
            assert said.status_code == 400, body
    assert fake.hits == 0


def test_azures_own_client_finds_us_where_it_looks() -> None:
    with FakeProvider(lambda request: f"from {request.model}") as fake:
        with service(fake) as served:
            with openai.AzureOpenAI(
                azure_endpoint=served.anthropic_url, api_key=served.secret, max_retries=0,
                api_version="2024-10-21",
            ) as client:  # fmt: skip
                messages: Any = [{"role": "user", "content": "x"}]
                said = client.chat.completions.create(model="fake-chat/gpt", messages=messages)
                assert said.choices[0].message.content == "from gpt"
                pieces = client.chat.completions.create(
                    model="fake-chat/gpt", messages=messages, stream=True
                )
                words = [c.choices[0].delta.content or "" for c in pieces if c.choices]
                assert "".join(words) == "from gpt"


async def test_azure_is_asked_by_deployment_where_a_version_is_set() -> None:
    from holdfast.gateway.calls import generate_text

    root = "https://r.openai.azure.com"
    newer = make_gateway(environ={"AZURE_OPENAI_ENDPOINT": root, "AZURE_OPENAI_API_KEY": "k"})
    assert newer.providers["azure"].base_url == f"{root}/openai/v1"
    with FakeProvider(["hello"]) as fake:
        older = make_gateway(environ={
            "AZURE_OPENAI_ENDPOINT": f"http://127.0.0.1:{fake.port}", "AZURE_OPENAI_AD_TOKEN": "t",
            "OPENAI_API_VERSION": "2024-10-21",
        })  # fmt: skip
        said = await generate_text("azure/my-deployment", prompt="x", gateway=older)
        assert said.text == "hello"
        assert fake.received[0].headers["Authorization"] == "Bearer t"
        await older.close()
    await newer.close()
