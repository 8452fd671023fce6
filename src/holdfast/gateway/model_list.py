"""Which models are usable here, and why others are not."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.errors import UnknownModel
from holdfast.gateway import local, scripted
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.providers import Provider, why_unusable


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model by the name to ask for it, and why it can't be had here."""

    name: str
    provider: str
    why_not: str | None = None
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


def list_models(gateway: Gateway, *, look: bool = False) -> list[ListedModel]:
    """Aliases first, then every provider's models as far as they are known offline.

    With `look`, providers on this machine are tried at their door.
    """
    listed = [_alias(gateway, name) for name in gateway.config.aliases]
    for provider in gateway.providers.values():
        why = why_not_here(provider) if look else why_unusable(provider)
        listed.extend(_listed(gateway, provider, model, why) for model in _models_of(provider))
    return listed


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
    from genai_prices import data_snapshot

    for known in data_snapshot.get_snapshot().providers:
        if known.id == provider.prices_as:
            return [model.id for model in known.models if not model.deprecated]
    return []
