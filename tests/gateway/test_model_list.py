"""What providers say of their models, in the shapes they say it in."""

from typing import Any

import pytest

from gateway.support import fake_providers, make_gateway
from holdfast.gateway.model_list import _offered, ask_providers, list_models

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "offered"),
    [
        (
            {"object": "list", "data": [
                {"id": "gpt-5.2", "object": "model"}, {"id": "text-embedding-3-small"},
                {"id": "whisper-1"}, {"id": "gpt-4o-mini-tts"}, {"id": "omni-moderation-latest"},
                {"id": "gpt-image-1"}, {"id": "gpt-realtime"}, {"id": "o4-mini"},
            ]},
            {"gpt-5.2": True, "text-embedding-3-small": False, "whisper-1": False,
             "gpt-4o-mini-tts": False, "omni-moderation-latest": False, "gpt-image-1": False,
             "gpt-realtime": False, "o4-mini": True},
        ),
        (
            {"data": [{"type": "model", "id": "claude-opus-4-5", "display_name": "Claude"}],
             "has_more": False, "first_id": "claude-opus-4-5"},
            {"claude-opus-4-5": True},
        ),
        (
            {"object": "list", "data": [{"id": "models/gemini-3-pro", "object": "model"},
                                        {"id": "models/gemini-embedding-001"}]},
            {"gemini-3-pro": True, "gemini-embedding-001": False},
        ),
        (
            {"data": [{"id": "codestral-embed", "capabilities": {"completion_chat": False}},
                      {"id": "mistral-image-of-words", "capabilities": {"completion_chat": True}}]},
            {"codestral-embed": False, "mistral-image-of-words": True},
        ),
        (
            {"data": [{"id": "a/b", "architecture": {"output_modalities": ["text"]}},
                      {"id": "c/d", "architecture": {"output_modalities": ["image"]}}]},
            {"a/b": True, "c/d": False},
        ),
        (
            [{"id": "meta/x", "type": "chat"}, {"id": "bb/y", "type": "embedding"}],
            {"meta/x": True, "bb/y": False},
        ),
    ],
    ids=["openai", "anthropic", "google", "mistral", "openrouter", "together"],
)  # fmt: skip
def test_a_list_is_read_in_every_shape(body: Any, offered: dict[str, bool]) -> None:
    assert _offered(body) == offered


@pytest.mark.parametrize("body", [{}, {"data": 3}, "x", None, {"data": {"id": "x"}}])
def test_what_is_no_list_is_refused(body: Any) -> None:
    with pytest.raises(ValueError, match="no list"):
        _offered(body)


def test_odd_entries_are_left_out() -> None:
    assert _offered({"data": [3, None, {}, {"id": 5}, {"id": ""}, {"id": "m"}]}) == {"m": True}


async def test_a_provider_that_does_not_say_is_listed_by_the_price_data() -> None:
    gateway = make_gateway(
        providers={
            "openai": {"base_url": "http://127.0.0.1:9/v1"},
            **fake_providers("http://127.0.0.1:9/v1", "chat"),
        }
    )
    asked = await ask_providers(gateway)
    assert "out of reach at 127.0.0.1:9" in str(asked["fake-chat"])
    names = [model.name for model in list_models(gateway, asked=asked)]
    assert "openai/gpt-4o" in names
    await gateway.close()
