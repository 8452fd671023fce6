"""The gateway on a store in PostgreSQL: its service, its keys, and budgets shared by processes."""

from __future__ import annotations

import openai
import pytest

import postgres_server
from gateway.support import Service, make_gateway
from gateway.test_budgets import full, kill_9_leaves_no_room_lost_and_none_too_much, priced
from holdfast.records.calls import SpendLimit
from holdfast.testing.providers import FakeProvider

NANO = 10**9

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


def test_keys_limits_and_calls_of_the_service_are_shared_by_all_on_a_store() -> None:
    url = postgres_server.fresh_url()
    with FakeProvider(full) as fake:
        config = priced(fake.url)
        with (
            Service(lambda: make_gateway(url, **config)) as one,
            Service(lambda: make_gateway(url, **config)) as two,
        ):
            one.ask(one.gateway.ledger.set_limit(SpendLimit(f"key:{one.key.id}", NANO // 5, None)))
            answers = []
            for served in (one, two, one):
                client = openai.OpenAI(base_url=served.url, api_key=one.secret, max_retries=0)
                try:
                    reply = client.chat.completions.create(
                        model="fake-chat/m",
                        messages=[{"role": "user", "content": "hi"}],
                        max_tokens=100,
                    )
                    answers.append(reply.choices[0].message.content)
                except openai.APIStatusError as refused:
                    answers.append(refused.status_code)
            assert answers == ["x", "x", 402], "$0.10 each, wherever it is made; $0.20 is the limit"
            assert [call.status for call in two.calls()] == ["completed", "completed"]


def test_kill_9_leaves_no_room_lost_and_none_too_much() -> None:
    kill_9_leaves_no_room_lost_and_none_too_much(postgres_server.fresh_url())
