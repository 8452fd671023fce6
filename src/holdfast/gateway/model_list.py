"""Which models are usable here, which of them can chat, and why others are not.

Offline a provider's models are those that the price data knows, which has none of a provider of
your own and old ones of all others. `ask_providers` asks each for its list.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

from holdfast import json_text
from holdfast.errors import ProviderError, UnknownModel
from holdfast.gateway import local, scripted
from holdfast.gateway.accounting import Meter
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.providers import Provider, why_unusable
from holdfast.gateway.upstream import provider_headers


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model by the name to ask for it, and why it can't be had here."""

    name: str
    provider: str
    why_not: str | None = None
    chat: bool = True
    """Whether it answers messages; others embed, draw, speak or judge."""
    input_price: str | None = None
    """US dollars per million tokens; None when unknown."""
    output_price: str | None = None


def why_not_here(provider: Provider) -> str | None:
    """Why a provider can't be used here, a look at its door included if it is on this machine."""
    why = why_unusable(provider)
    if why is not None or provider.kind != "http" or not provider.base_url:
        return why
    parts = urlsplit(provider.base_url)
    if parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=0.5).close()
    except OSError:
        return f"nothing listens at {provider.base_url}"
    return None


Offered = Mapping[str, bool]
"""Names of a provider's models, and whether each can chat."""


def list_models(
    gateway: Gateway, *, look: bool = False, asked: Mapping[str, Offered | str] | None = None
) -> list[ListedModel]:
    """Aliases first, then every provider's models as far as they are known.

    With `look`, providers on this machine are tried at their door. `asked`: what
    `ask_providers` found out.
    """
    listed = [_alias(gateway, name) for name in gateway.config.aliases]
    for provider in gateway.providers.values():
        why = why_not_here(provider) if look else why_unusable(provider)
        told = (asked or {}).get(provider.name)
        if told is None or isinstance(told, str):
            offered: Offered = {name: _sounds_like_chat(name) for name in _models_of(provider)}
        else:
            offered = told
        listed.extend(
            replace(_listed(gateway, provider, model, why), chat=chat)
            for model, chat in offered.items()
        )
    return listed


async def ask_providers(gateway: Gateway, *, timeout: float = 5.0) -> dict[str, Offered | str]:
    """Ask every usable provider which models it has: their names, or why it did not say."""
    askable = [
        provider
        for provider in gateway.providers.values()
        if provider.kind == "http" and why_unusable(provider) is None
    ]
    found = await asyncio.gather(*(_ask(gateway, provider, timeout) for provider in askable))
    return {provider.name: each for provider, each in zip(askable, found, strict=True)}


async def _ask(gateway: Gateway, provider: Provider, timeout: float) -> Offered | str:
    config = gateway.config
    limits = replace(
        config.timeouts, connect=timeout, first_token=timeout, idle=timeout, total=timeout
    )
    format = provider.formats[0]
    # They give 20 or 50 at a time otherwise.
    query = {"anthropic": "?limit=1000", "gemini": "?pageSize=1000", "cohere": "?page_size=1000"}
    path = "/v1/models" if format == "cohere" else "/models"
    url = f"{provider.base_url}{path}{query.get(format, '')}"
    headers = {"Accept": "application/json", **provider_headers(provider, format)}
    try:
        async with Exchange(
            gateway.backends.client, provider.name, url, headers=headers,
            body=b"", meter=Meter(), timeouts=limits, bounds=config.bounds,
            streams=False, method="GET",
        ) as exchange:  # fmt: skip
            body = await exchange.read()
            if exchange.status != 200:
                return f"{provider.name} answered with status {exchange.status}"
    except ProviderError as error:
        return gateway.redact(error.message)
    try:
        return _offered(json_text.load(body))
    except (ValueError, RecursionError) as error:
        return f"{provider.name}'s list can't be read: {gateway.redact(str(error))[:200]}"


def _offered(body: Any) -> Offered:
    """The models of a provider's answer: a list, or an object with one."""
    listed: Any = body
    if isinstance(body, dict):
        held = cast("dict[str, Any]", body)
        listed = held.get("data", held.get("models"))  # Google and Cohere say models
    if not isinstance(listed, list):
        raise ValueError("it holds no list")
    found: dict[str, bool] = {}
    for each in cast("list[Any]", listed):
        model = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        name = model.get("id", model.get("name"))
        if isinstance(name, str) and name:
            name = name.removeprefix("models/")  # Google's way
            found[name] = _can_chat(name, model)
    return found


def _can_chat(name: str, model: dict[str, Any]) -> bool:
    """By the provider's own word where it has one, else by the name."""
    for field, way in (("supportedGenerationMethods", "generateContent"), ("endpoints", "chat")):
        ways: Any = model.get(field)  # Google, Cohere
        if isinstance(ways, list):
            return way in ways
    capabilities: Any = model.get("capabilities")
    if isinstance(capabilities, dict):
        said: Any = cast("dict[str, Any]", capabilities).get("completion_chat")  # Mistral
        if isinstance(said, bool):
            return said
    architecture: Any = model.get("architecture")
    if isinstance(architecture, dict):  # OpenRouter
        out: Any = cast("dict[str, Any]", architecture).get("output_modalities")
        if isinstance(out, list):
            return "text" in out
    if isinstance(model.get("type"), str) and model["type"] != "model":  # Together; not Anthropic
        return model["type"] in ("chat", "language", "code")
    return _sounds_like_chat(name)


_NO_CHAT = re.compile(
    r"embed|whisper|transcri|(?<![a-z])tts|dall-e|image|imagen|moderation|realtime|(?<![a-z])audio"
    r"|sora|veo|babbage|davinci|rerank|(?<![a-z])ocr|(?<![a-z])aqa|guard|bge-|stable-diffusion|flux"
    r"|speech|(?<![a-z])video"
)


def _sounds_like_chat(name: str) -> bool:
    return _NO_CHAT.search(name.lower()) is None


def _alias(gateway: Gateway, name: str) -> ListedModel:
    reasons: list[str] = []
    for target in gateway.config.aliases[name]:
        try:
            first = gateway.routes.candidates(target)[0]
        except UnknownModel as error:
            reasons.append(error.message)
            continue
        return _listed(gateway, first.provider, first.model, None, name)
    return ListedModel(name, "alias", "; ".join(reasons))


def _listed(
    gateway: Gateway, provider: Provider, model: str, why: str | None, name: str | None = None
) -> ListedModel:
    prices = gateway.prices.find(provider, model)
    return ListedModel(
        name or f"{provider.name}/{model}",
        provider.name,
        why,
        True,
        None if prices is None else f"{prices.rates.input:f}",
        None if prices is None else f"{prices.rates.output:f}",
    )


def _models_of(provider: Provider) -> list[str]:
    if provider.kind == "local":
        return list(local.MODELS)
    if provider.kind == "scripted":
        return scripted.names()
    if provider.prices_as is None:
        return []
    from genai_prices import data_snapshot  # slow to import, and not needed by all

    for known in data_snapshot.get_snapshot().providers:
        if known.id == provider.prices_as:
            return [model.id for model in known.models if not model.deprecated]
    return []
