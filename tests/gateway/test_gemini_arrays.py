"""Gemini's streams without `alt=sse`: one JSON array, for clients of every upstream's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.messages import Request
from holdfast.gateway.scripted import Fail, Say
from holdfast.gateway.service.endpoints import asked_for
from holdfast.testing.providers import FakeProvider

UPSTREAMS = ["chat", "responses", "anthropic", "gemini", "bedrock"]


def answer(request: Request) -> Any:
    match request.messages[-1].text:
        case "refused":
            return Fail(400, "no such thing")
        case "event":
            return Fail("error_event", text="begun", after=5)
        case _:
            return Say("Hello — grüß Gott, 你好! 🎉")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with FakeProvider(answer) as fake:

        def make() -> Any:
            bedrock = {"base_url": f"http://127.0.0.1:{fake.port}", "formats": ["bedrock"]}
            providers = fake_providers(fake.url, "chat", "responses", "anthropic", "gemini")
            return make_gateway(providers={**providers, "fake-bedrock": bedrock})

        with Service(make) as service:
            yield service


def asked(service: Service, model: str, words: str, *query: str, **headers: str) -> Any:
    url = f"{service.anthropic_url}/v1beta/models/{model}:streamGenerateContent"
    body = {"contents": [{"role": "user", "parts": [{"text": words}]}]}
    given = {"x-goog-api-key": service.secret, **headers}
    return httpx2.post("?".join((url, *query)), headers=given, json=body, timeout=120)


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_array_holds_what_the_events_hold(service: Service, upstream: str) -> None:
    said = asked(service, f"fake-{upstream}/m", "hi")
    assert said.headers["content-type"].startswith("application/json")
    events = [
        json.loads(line[6:])
        for line in asked(service, f"fake-{upstream}/m", "hi", "alt=sse").text.splitlines()
        if line.startswith("data: ")
    ]
    assert [one["candidates"] for one in said.json()] == [one["candidates"] for one in events]
    parts = [part for one in said.json() for part in one["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts) == "Hello — grüß Gott, 你好! 🎉"


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_an_error_is_in_the_array_too(service: Service, upstream: str) -> None:
    refused = asked(service, f"fake-{upstream}/m", "refused")
    assert refused.status_code == 400 and refused.json()[0]["error"]["code"] == 400
    *begun, broken = asked(service, f"fake-{upstream}/m", "event").json()
    assert begun and "error" in broken


def test_a_model_is_found_without_its_folder_as_the_ai_sdk_writes_it() -> None:
    found = asked_for("/v1beta/fake-chat/m:streamGenerateContent")
    assert found is not None and (found.model, found.streams) == ("fake-chat/m", True)
    kept = asked_for("/v1beta/tunedModels/t1:generateContent")
    assert kept is not None and kept.model == "tunedModels/t1"
    assert asked_for("/v1beta/fake-chat/m:other") is None


def test_an_answer_with_a_key_is_had_again_in_either_form(service: Service) -> None:
    key = {"Idempotency-Key": "one"}
    first = asked(service, "fake-gemini/m", "hi", **key)
    again = asked(service, "fake-gemini/m", "hi", **key)
    assert again.headers["x-holdfast-replayed"] == "true" and again.text == first.text
    events = asked(service, "fake-gemini/m", "hi", "alt=sse", **key)
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.headers["x-holdfast-replayed"] == "true"
