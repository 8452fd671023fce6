"""Tools that only one provider has, offered through a gateway to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.json_fields import WireError
from holdfast.gateway.messages import Origin, Request
from holdfast.gateway.scripted import Say
from holdfast.testing.providers import FakeProvider

SCHEMA = {"type": "object", "properties": {}}
NAMED: dict[Origin, tuple[dict[str, Any], Any, Any]] = {
    "chat": ({"type": "function", "function": {"name": "run", "parameters": SCHEMA}},
             "required", {"type": "function", "function": {"name": "run"}}),
    "responses": ({"type": "function", "name": "run", "parameters": SCHEMA},
                  "required", {"type": "function", "name": "run"}),
    "anthropic": ({"name": "run", "input_schema": SCHEMA}, {"type": "any"},
                  {"type": "tool", "name": "run"}),
}  # fmt: skip
"""A function tool of each format, and two ways to insist on a tool."""


def body(name: Origin, tools: list[Any], choice: Any = None) -> dict[str, Any]:
    asked = "hi" if name == "responses" else [{"role": "user", "content": "hi"}]
    made = {"model": "m", "input" if name == "responses" else "messages": asked, "tools": tools}
    return made if choice is None else {**made, "tool_choice": choice}


@pytest.mark.parametrize("name", NAMED)
def test_a_tool_of_one_provider_is_left_out_where_the_model_may_choose(name: Origin) -> None:
    function, *_ = NAMED[name]
    foreign = {"type": "web_search_20260101", "name": "web_search"}
    request = FORMATS[name].decode_request(body(name, [foreign, function, {"type": "a\r\nb: c"}]))
    assert [tool.name for tool in request.tools] == ["run"]
    assert request.left_out == ("web_search_20260101", "other")


@pytest.mark.parametrize("name", NAMED)
def test_who_insists_on_a_tool_or_has_no_other_is_refused(name: Origin) -> None:
    function, *choices = NAMED[name]
    foreign = {"type": "web_search", "name": "web_search"}
    for choice in choices:
        with pytest.raises(WireError, match=r"tools\[1\]: only .* not 'web_search'"):
            FORMATS[name].decode_request(body(name, [function, foreign], choice))
    with pytest.raises(WireError, match="not 'web_search'"):
        FORMATS[name].decode_request(body(name, [foreign]))


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    def answer(request: Request) -> Say:
        return Say(", ".join(tool.name for tool in request.tools))

    with FakeProvider(answer) as fake:
        yield fake


def test_a_client_is_told_what_its_model_was_not_offered(fake: FakeProvider) -> None:
    tools: Any = [NAMED["responses"][0], {"type": "web_search"}]
    with (
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as client,
    ):
        other, own = (
            client.responses.with_raw_response.create(model=f"{name}/m", input="hi", tools=tools)
            for name in ("fake-anthropic", "fake-chat")
        )
        assert other.headers["x-holdfast-left-out"] == "web_search"
        assert other.parse().output_text == own.parse().output_text == "run"
