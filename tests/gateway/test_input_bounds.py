"""Under a budget nothing is sent whose cost the request's size does not bound."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.errors import BudgetExceeded
from holdfast.gateway.calls import generate_text
from holdfast.gateway.input_bounds import unbounded
from holdfast.testing.providers import FakeProvider

FILE = {"type": "input_file", "file_id": "file_1"}
DOCUMENT = {"type": "document", "source": {"type": "url", "url": "https://e.com/a.pdf"}}
PICTURE = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}

TOOLS: Any = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
    {"type": "web_search"},
]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"tools": [{"type": "function"}, {"type": "web_search"}]}, "tools[1] (web_search)"),
        ({"tools": [{"type": "web_search_20250305"}]}, "tools[0] (web_search_20250305)"),
        ({"input": [{"content": [FILE]}]}, "input[0].content[0] (input_file)"),
        ({"messages": [{"content": [DOCUMENT]}]}, "messages[0].content[0] (document)"),
        ({"messages": [{"content": [PICTURE]}]}, "messages[0].content[0].source (file)"),
        (
            {"messages": [{"content": [{"type": "tool_result", "content": [DOCUMENT]}]}]},
            "messages[0].content[0].content[0] (document)",
        ),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "input[0] (item_reference)"),
        ({"input": "hi", "tools": [{"type": "function"}, {"type": "bash_20250124"}]}, None),
        ({"messages": [{"content": [{"type": "text", "text": "hi"}]}], "previous_response_id": None}, None),
        ({"messages": [{"content": [{"type": "document", "source": {"type": "text"}}]}]}, None),
    ],
)  # fmt: skip
def test_what_size_does_not_bound_is_named(body: dict[str, Any], what: str | None) -> None:
    assert unbounded(body) == what


@pytest.mark.parametrize("limited", [True, False])
def test_a_tool_that_the_provider_runs_needs_a_declared_bound(limited: bool) -> None:
    config: dict[str, Any] = {"budgets": [{"per": "day", "tokens": 20_000}]} if limited else {}
    with (
        FakeProvider(["one", "two"]) as fake,
        Service(
            lambda: make_gateway(providers=fake_providers(fake.url, "responses"), **config)
        ) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as client,
    ):

        def ask(**headers: str) -> str:
            return client.responses.create(
                model="fake-responses/m", input="go on", tools=TOOLS,
                max_output_tokens=100, extra_headers=headers,
            ).output_text  # fmt: skip

        if not limited:
            assert ask() == "one"
            return
        with pytest.raises(openai.APIStatusError, match="web_search") as caught:
            ask()
        assert caught.value.status_code == 402 and fake.hits == 0
        with pytest.raises(openai.APIStatusError):  # as declared, it does not fit
            ask(**{"x-holdfast-input-bound": "19950"})
        assert fake.hits == 0
        assert ask(**{"x-holdfast-input-bound": "15000"}) == "one"
        assert [call.status for call in service.calls()] == ["completed", "failed"]


async def test_the_library_declares_it_with_an_option() -> None:
    with FakeProvider(["one"]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "responses"),
            budgets=[{"per": "day", "tokens": 20_000}],
        )
        options: Any = {
            "prompt": "go on", "max_tokens": 100, "gateway": gateway,
            "extra": {"responses": {"tools": TOOLS}},
        }  # fmt: skip
        with pytest.raises(BudgetExceeded, match="web_search"):
            await generate_text("fake-responses/m", **options)
        reply = await generate_text("fake-responses/m", input_bound=15_000, **options)
        assert reply.text == "one" and fake.hits == 1
        await gateway.close()
