"""Which model to use when nobody named one, and what a run may spend: the same for every agent.

In order: what the configuration names, hosted providers whose key is set, servers on this machine
that answer. What to do if there is none (the code agent has a scripted demo model) is the agent's
decision.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from holdfast.gateway import Gateway
from holdfast.gateway.providers import why_unusable
from holdfast.records.calls import NANO, SpendLimit

_HOSTED = {
    "anthropic": "claude-sonnet-4.6",
    "openai": "gpt-5.2",
    "google": "gemini-2.5-pro",
    "openrouter": "anthropic/claude-sonnet-4.6",
    "deepseek": "deepseek-chat",
    "mistral": "codestral-latest",
    "xai": "grok-4",
    "groq": "openai/gpt-oss-120b",
    "together": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
    "fireworks": "accounts/fireworks/models/qwen3-coder-480b-a35b-instruct",
}
"""A good model for code of each hosted provider, the providers in order of preference."""
_NEARBY = ("ollama", "llamacpp", "vllm")
_CODERS = ("coder", "code", "devstral", "gpt-oss", "qwen", "llama")
_LOOK_SECONDS = 1.0
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model and why it was chosen."""

    model: str
    because: str


NONE_USABLE = "no key is set and no model server answers here"


async def choose(gateway: Gateway, *configured: str | None) -> Chosen | None:
    """The model to use unless a run names one: the first that is configured, else the best here.

    None if none is usable.
    """
    for model in configured:
        if model is not None:
            return Chosen(model, "configured")
    for name, model in _HOSTED.items():
        provider = gateway.providers[name]
        if why_unusable(provider) is None:
            return Chosen(f"{name}/{model}", f"{' or '.join(provider.key_env)} is set")
    for name in _NEARBY:
        base = gateway.providers[name].base_url
        served = await asyncio.to_thread(_served, base) if base else []
        if served:
            best = min(served, key=_rank)
            return Chosen(f"{name}/{best}", f"{base} answers")
    return None


async def set_budget(gateway: Gateway, run_id: str, budget: Decimal | None) -> None:
    """Let a run spend no more than this, in US dollars, its children included."""
    if budget is not None:
        await gateway.ledger.set_limit(SpendLimit(f"run:{run_id}", usd=int(budget * NANO)))


def _served(base: str) -> list[str]:
    """The models that a server on this machine offers; none if there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base}/models", timeout=_LOOK_SECONDS) as answer:
            data: Any = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError, urllib.error.URLError):
        return []
    models: Any = cast("dict[str, Any]", data).get("data") if isinstance(data, dict) else None
    listed = cast("list[Any]", models) if isinstance(models, list) else []
    named = [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict)]
    return [str(each["id"]) for each in named if "id" in each]


def _rank(model: str) -> tuple[int, str]:
    for place, word in enumerate(_CODERS):
        if word in model.lower():
            return place, model
    return len(_CODERS), model
