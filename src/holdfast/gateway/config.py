"""The gateway's configuration: typed, from a dict (a `[gateway]` section) or built by hand.

    [gateway.aliases]
    best = ["anthropic/claude-opus-4.5", "openai/gpt-5.2"]   # ordered fallbacks

    [gateway.providers.lab]
    base_url = "http://10.0.0.5:8000/v1"
    formats = ["chat"]

    [[gateway.budgets]]
    per = "day"
    usd = 20

Keys come from the environment; a provider's `key_env` names the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from holdfast.config import section
from holdfast.errors import ConfigError
from holdfast.gateway.messages import Origin
from holdfast.typed_settings import DURATION, build


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait: for room in a budget that calls in flight hold, for the connection, the
    first token, the next bytes, and in all."""

    connect: float = field(default=10.0, metadata=DURATION)
    first_token: float = field(default=120.0, metadata=DURATION)
    idle: float = field(default=60.0, metadata=DURATION)
    total: float = field(default=600.0, metadata=DURATION)
    budget: float = field(default=300.0, metadata=DURATION)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often to go again where nothing was bought (no connection, 429, 529)."""

    attempts: int = 3
    """Requests to one provider in all, the first included."""
    base: float = field(default=0.5, metadata=DURATION)
    cap: float = field(default=30.0, metadata=DURATION)
    """The longest wait; a provider that asks for a longer one is given up on."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When to leave a failing provider alone, and for how long."""

    failures: int = 5
    open_for: float = field(default=30.0, metadata=DURATION)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a provider may cost us in memory, in bytes."""

    reply: int = 16 * 1024 * 1024
    event: int = 4 * 1024 * 1024
    error: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A hard limit: per run, workflow, tag, key, user, team or day; for one `name` or each."""

    per: Literal["run", "workflow", "tag", "key", "user", "team", "day"]
    usd: Decimal | None = None
    tokens: int | None = None
    name: str | None = None
    """Which one; None limits each of them."""
    period: Literal["ever", "day"] = "ever"
    warn_at: Decimal | None = None
    """The part of it (0.8) at which a warning is given, once."""

    def __post_init__(self) -> None:
        if self.usd is None and self.tokens is None:
            raise ConfigError("a budget needs usd or tokens")
        if self.warn_at is not None and not 0 < self.warn_at <= 1:
            raise ConfigError("warn_at is a part of the budget: more than 0, at most 1")


@dataclass(frozen=True, slots=True)
class Route:
    """A name for several models, and which of them is asked first; the others are its fallbacks."""

    models: tuple[str, ...]
    by: Literal["weight", "latency"] = "weight"
    """`weight`: by chance, in proportion to `weights`; `latency`: the quickest of late."""
    weights: tuple[float, ...] = ()
    """One for each model; none: all alike."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("a route needs models")
        if self.weights and (
            len(self.weights) != len(self.models) or min(self.weights) < 0 or not any(self.weights)
        ):
            raise ConfigError("a route needs one weight for each of its models, not all of them 0")


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider of your own, or other settings for a known one."""

    base_url: str | None = None
    formats: tuple[Origin, ...] | None = None
    key_env: str | None = None
    key_envs: tuple[str, ...] = ()
    """Variables of several keys, used in turn; one that is refused or limited leads to the next."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    rpm: int | None = None
    """Requests per minute; more wait."""
    tpm: int | None = None
    """Tokens per minute; more wait."""
    free: bool | None = None
    """Nobody bills for it: its price is 0, not unknown."""
    max_tokens_field: str | None = None
    json_schema: bool | None = None
    drop: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Everything the gateway can be told."""

    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Name to model, or to models in the order to try them."""
    routes: dict[str, Route] = field(default_factory=dict[str, Route])
    """Name to models that share its calls."""
    steps: dict[str, str] = field(default_factory=dict[str, str])
    """Step name to the model its calls use, whatever the code says."""
    fallbacks: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Model to those tried after it."""
    providers: dict[str, ProviderConfig] = field(default_factory=dict[str, ProviderConfig])
    scripted: dict[str, str] = field(default_factory=dict[str, str])
    """Name to `package.module:model`: scripted models to load when they are first asked for."""
    prices: dict[str, ModelPrice] = field(default_factory=dict[str, ModelPrice])
    budgets: tuple[Budget, ...] = ()
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    breaker: Breaker = Breaker()
    bounds: Bounds = Bounds()
    hedge_after: float | None = field(default=None, metadata=DURATION)
    """Ask the first fallback as well if no answer has begun after this long; the one that begins
    first is used, the other stopped and counted in full. None: never."""
    default_max_tokens: int = 8192
    """The output cap where a budget needs one and the caller set none."""
    cut_allowance: int = 1000
    """Output tokens that a provider may have made, beside those that came, when a stream is cut:
    they count against budgets."""
    keep_content: bool = True
    """Keep prompts and replies (redacted) for the inspector."""
    redact: tuple[str, ...] = ()
    """Regular expressions of secrets, beside the built-in ones."""
    alerts_url: str | None = None
    """Where warnings of budgets are posted as JSON."""
    on_unknown: Literal["refuse", "again"] = "refuse"
    """What to do about an earlier call with the same key whose outcome is unknown."""
    replays_for: float = field(default=86400.0, metadata=DURATION)
    """How long the reply of a keyed call can be had again."""
    responses_for: float = field(default=30 * 86400.0, metadata=DURATION)
    """How long clients of the responses format can go on from an answer whose provider keeps none;
    0: not at all."""
    private_image_urls: bool = False
    """Let image URLs name private addresses."""
    trust_env: bool = False
    """Use the proxy variables (HTTPS_PROXY, …) for providers."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GatewayConfig:
        """From a `[gateway]` section; raises ConfigError, naming what is wrong."""
        return build(cls, data, "gateway")

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> GatewayConfig:
        """From the `[gateway]` section of `holdfast.toml` and the environment."""
        return section("gateway", cls, environ)
