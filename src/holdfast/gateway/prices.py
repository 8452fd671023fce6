"""What tokens cost: unit prices per model, from configuration or the `genai-prices` data.

An unknown price is None, never 0. Looking a model up takes the library 0.2 ms, so unit prices
are kept per model for an hour (prices change with the date, seldom with the hour).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any

from holdfast.gateway.config import ModelPrice
from holdfast.gateway.providers import Provider
from holdfast.gateway.reply import Usage
from holdfast.records.calls import NANO

_PER_TOKEN = Decimal(1000)  # dollars per million tokens -> nanodollars per token
_KEEP = 3600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cached: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal


@dataclass(frozen=True, slots=True)
class Prices:
    """The unit prices of one model; `tiers` apply in full from their number of input tokens."""

    rates: Rates
    tiers: tuple[tuple[int, Rates], ...]
    per_request: Decimal
    source: str
    """Where they are from: `config`, `free`, or the data's version."""
    per_search: Decimal = Decimal(0)
    """US dollars for one web search that the provider makes."""
    per_letter: Decimal | None = None
    """US dollars for one letter spoken; None: it is billed otherwise."""
    per_second: Decimal | None = None
    """US dollars for one second of sound heard; None: it is billed otherwise."""
    record: Mapping[str, str] = field(init=False, compare=False)
    """What each ledger row keeps."""

    def __post_init__(self) -> None:
        rates = self.rates
        record = {
            "input": str(rates.input),
            "output": str(rates.output),
            "cached": str(rates.cached),
            "cache_write": str(rates.cache_write),
            "source": self.source,
        }
        if self.per_search:
            record["search"] = str(self.per_search)
        object.__setattr__(self, "record", record)

    def rates_for(self, input_tokens: int) -> Rates:
        rates = self.rates
        for start, tier in self.tiers:
            if input_tokens > start:
                rates = tier
        return rates

    def cost(self, usage: Usage) -> int | None:
        """Nanodollars for this usage, rounded up; None if what was used has no known price."""
        if self is FREE:
            return 0
        if usage.letters:
            return None if self.per_letter is None else _up(usage.letters * self.per_letter * NANO)
        if usage.seconds:
            heard = Decimal(str(usage.seconds))
            return None if self.per_second is None else _up(heard * self.per_second * NANO)
        if self.rates is _NO_RATES:
            return None
        rates = self.rates_for(usage.input)
        plain = max(usage.input - usage.cached - usage.cache_write, 0)
        dollars_per_million = (
            plain * rates.input
            + usage.cached * rates.cached
            + (usage.cache_write - usage.cache_write_1h) * rates.cache_write
            + usage.cache_write_1h * rates.cache_write_1h
            + usage.output * rates.output
        )
        beside = self.per_request + usage.searches * self.per_search
        return _up(dollars_per_million * _PER_TOKEN + beside * NANO)

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """Nanodollars this much can cost at most, whatever is cached or written to a cache."""
        if self is FREE:
            return 0
        if self.rates is _NO_RATES:
            return None
        reached = [self.rates, *(rates for start, rates in self.tiers if input_tokens > start)]
        dear_input = max(
            rate
            for rates in reached
            for rate in (rates.input, rates.cached, rates.cache_write, rates.cache_write_1h)
        )
        dear_output = max(rates.output for rates in reached)
        dollars = input_tokens * dear_input + output_tokens * dear_output
        return _up(dollars * _PER_TOKEN + self.per_request * NANO)


_NO_RATES = Rates(*[Decimal(0)] * 5)
"""Of a model that is not billed by the token."""
FREE = Prices(Rates(*[Decimal(0)] * 5), (), Decimal(0), "free")


class PriceBook:
    """Prices by provider and model."""

    def __init__(self, configured: dict[str, ModelPrice]) -> None:
        self._configured = {name: _from_config(price) for name, price in configured.items()}
        self._kept: dict[tuple[str, str], tuple[float, Prices | None]] = {}

    def find(self, provider: Provider, model: str) -> Prices | None:
        """The model's unit prices, or None if nobody knows them."""
        key = (provider.name, model)
        kept = self._kept.get(key)
        now = time.monotonic()
        if kept is None or now - kept[0] > _KEEP:
            kept = self._kept[key] = (now, self._look_up(provider, model))
            if len(self._kept) > 10_000:
                self._kept.pop(next(iter(self._kept)))
        return kept[1]

    def _look_up(self, provider: Provider, model: str) -> Prices | None:
        for name in (f"{provider.name}/{model}", f"{provider.name}/*", model):
            if name in self._configured:
                return self._configured[name]
        if provider.free:
            return FREE
        return _from_data(provider.prices_as, model) if provider.prices_as else None


def _from_config(price: ModelPrice) -> Prices:
    cached = price.input if price.cached is None else price.cached
    write = price.input if price.cache_write is None else price.cache_write
    return Prices(Rates(price.input, price.output, cached, write, write), (), Decimal(0), "config")


def _from_data(provider: str, model: str) -> Prices | None:
    import genai_prices  # slow to import: loaded with the first price that is looked up
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    try:
        _, info = snapshot.find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    found: dict[str, Any] = info.get_prices(datetime.now(UTC)).__dict__
    has_output = "embed" not in model.lower()  # vectors are not billed, only what they are of
    letters, hours = found.get("input_mchars"), found.get("input_audio_hours")
    hours = found.get("audio_hours") if hours is None else hours
    by_token = found.get("input_mtok") is not None and (
        not has_output or found.get("output_mtok") is not None
    )
    if not by_token and letters is None and hours is None:
        return None
    starts = sorted({
        tier.start
        for value in found.values()
        for tier in (getattr(value, "tiers", None) or ())
    })  # fmt: skip
    per_request = (found.get("requests_kcount") or Decimal(0)) / 1000
    return Prices(
        rates=_rates_at(found, None) if by_token else _NO_RATES,
        tiers=tuple((start, _rates_at(found, start)) for start in starts),
        per_request=per_request,
        source=f"genai-prices {genai_prices.__version__}",
        per_search=_plain(found.get("web_searches_kcount")) / 1000,
        per_letter=None if letters is None else _plain(letters) / 1_000_000,
        per_second=None if hours is None else _plain(hours) / 3600,
    )


def _plain(value: Any) -> Decimal:
    """A price without its tiers, which such prices don't have so far."""
    return Decimal(0) if value is None else getattr(value, "base", value)


def _rates_at(found: dict[str, Any], start: int | None) -> Rates:
    def rate(name: str, otherwise: Decimal) -> Decimal:
        value = found.get(name)
        if value is None:
            return otherwise
        if isinstance(value, Decimal):
            return value
        chosen: Decimal = value.base
        for tier in value.tiers:
            if start is not None and tier.start <= start:
                chosen = tier.price
        return chosen

    plain = rate("input_mtok", Decimal(0))
    write = rate("cache_write_mtok", plain)
    return Rates(
        input=plain,
        output=rate("output_mtok", Decimal(0)),
        cached=rate("cache_read_mtok", plain),
        cache_write=write,
        cache_write_1h=rate("cache_write_1h_mtok", write),
    )


def _up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))
