"""Which model to use when nobody named one: the best that is usable here.

In order: what `[code]` in the configuration names, hosted providers whose key is set, servers
on this machine that answer, and last the scripted demo model, which knows a few tasks by heart.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, cast

from holdfast.agents.code import demo
from holdfast.agents.code.settings import CodeSettings
from holdfast.errors import FatalError
from holdfast.gateway import Gateway
from holdfast.gateway.providers import why_unusable

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

    @property
    def is_demo(self) -> bool:
        return self.model == demo.MODEL


async def choose(gateway: Gateway, settings: CodeSettings) -> Chosen:
    """The model to use unless a run names one."""
    if settings.model is not None:
        return Chosen(settings.model, "configured")
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
    return Chosen(demo.MODEL, "no key is set and no model server answers here")


def check_models(gateway: Gateway, *models: str | None) -> None:
    """Raise for a model that can't be had here."""
    demo.register()
    for model in models:
        if model is not None:
            gateway.routes.candidates(model)


def check_demo(task: str, language: str, *models: str | None) -> None:
    """Raise if a task is to be done by the demo model and it does not know it."""
    why = demo.declined(task, language) if demo.MODEL in models else None
    if why is not None:
        raise FatalError(f"{demo.MODEL} declined the task: {why}", hint=demo.HOW_TO_GET_ONE)


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
