"""Providers are data: a name, a base URL, a key variable, the formats spoken, and quirks."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from holdfast.errors import ConfigError, UnknownModel
from holdfast.gateway.cloud_settings import (
    AwsKeys,
    aws_region,
    aws_source,
    google_project,
    google_source,
)
from holdfast.gateway.config import GatewayConfig, ProviderConfig, Route
from holdfast.gateway.formats.base import Quirks
from holdfast.gateway.messages import Origin
from holdfast.near_names import did_you_mean

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key"]
Cloud = Literal["aws", "google"]


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, as known or as configured."""

    name: str
    base_url: str | None
    formats: tuple[Origin, ...] = ("chat",)
    """The formats it speaks; the first is used unless a client speaks another of them."""
    key_env: tuple[str, ...] = ()
    base_env: tuple[str, ...] = ()
    needs_key: bool = True
    auth: Auth = "bearer"
    quirks: Quirks = field(default_factory=Quirks)
    prices_as: str | None = None
    """Its name in the price data."""
    free: bool = False
    kind: Literal["http", "scripted", "local"] = "http"
    rpm: int | None = None
    tpm: int | None = None
    cloud: Cloud | None = None
    """Whose credentials it takes, from where that cloud's own tools look."""
    region: str = ""
    format_paths: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where a format is spoken, under the base URL, if not at its root."""
    api_version: str | None = None
    """Azure: the version named in addresses of the older kind, by deployment."""
    prefixes: tuple[str, ...] = ()
    """Bare model names that are this provider's: `claude-…`."""
    key: str | None = field(default=None, repr=False)
    """The key's value, once resolved; never shown."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Where there are several: all of them, used in turn."""
    aws_keys: AwsKeys | None = field(default=None, repr=False)


_OPENAI = Quirks(
    max_tokens_field="max_completion_tokens", sampling=r"(?!o\d|gpt-[5-9]|gpt-\d\d).*|.*chat.*"
)
_ANTHROPIC = Quirks(  # Opus and Sonnet up to 4.6, Haiku up to 4.5, and all before them
    sampling=r"(?!claude).*|claude-(?:[123]|instant).*"
    r"|claude-(?:opus|sonnet)-[34](?:[-.][0-6])?(?:-\d{8})?(?:-latest)?"
    r"|claude-haiku-[34](?:[-.][0-5])?(?:-\d{8})?(?:-latest)?"
)
_BEDROCK_SAMPLING = _ANTHROPIC.sampling and rf"(?:.*\.)?(?:{_ANTHROPIC.sampling})(?:-v\d.*)?"
# llama.cpp speaks Anthropic's format too, but leaves out `message_start` now and then (seen with
# its server of October 2026: 2 streams of 14): its chat format is translated instead.
_LOCAL = Quirks(parallel_tools=False, effort=False)

_VERTEX_CLAUDE = replace(
    _ANTHROPIC,
    sampling=_ANTHROPIC.sampling and rf"(?:{_ANTHROPIC.sampling})(?:@.*)?",
    body_version="vertex-2023-10-16",
)

KNOWN: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "anthropic", "https://api.anthropic.com/v1", ("anthropic",), ("ANTHROPIC_API_KEY",),
            ("ANTHROPIC_BASE_URL",), auth="x-api-key", quirks=_ANTHROPIC, prices_as="anthropic",
            prefixes=("claude-",),
        ),
        Provider(
            "openai", "https://api.openai.com/v1", ("chat", "responses"), ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL",), quirks=_OPENAI, prices_as="openai",
            prefixes=("gpt-", "o1", "o3", "o4", "chatgpt-"),
        ),
        Provider(
            "google", "https://generativelanguage.googleapis.com/v1beta", ("gemini", "chat"),
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GEMINI_BASE_URL",), auth="x-goog-api-key",
            quirks=Quirks(parallel_tools=False), prices_as="google", prefixes=("gemini-",),
            format_paths={"chat": "/openai"},
        ),
        Provider("vertex", None, ("gemini",), base_env=("GOOGLE_CLOUD_PROJECT",), needs_key=False,
                 prices_as="google", cloud="google"),
        Provider("bedrock", None, ("bedrock",), ("AWS_BEARER_TOKEN_BEDROCK",),
                 ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",), needs_key=False,
                 quirks=Quirks(sampling=_BEDROCK_SAMPLING), prices_as="aws", cloud="aws"),
        Provider("cohere", "https://api.cohere.com", ("cohere", "chat"),
                 ("CO_API_KEY", "COHERE_API_KEY"), ("CO_API_URL",),
                 quirks=Quirks(parallel_tools=False), prices_as="cohere",
                 prefixes=("command-", "c4ai-"), format_paths={"chat": "/compatibility/v1"}),
        Provider(
            "azure", None, ("chat", "responses"),
            ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"), ("AZURE_OPENAI_ENDPOINT",),
            auth="api-key", quirks=_OPENAI, prices_as="azure",
        ),
        Provider("openrouter", "https://openrouter.ai/api/v1", ("chat",), ("OPENROUTER_API_KEY",),
                 prices_as="openrouter"),
        Provider("groq", "https://api.groq.com/openai/v1", ("chat",), ("GROQ_API_KEY",),
                 prices_as="groq"),
        Provider("mistral", "https://api.mistral.ai/v1", ("chat",), ("MISTRAL_API_KEY",),
                 quirks=Quirks(seed=False, stream_usage=False, effort=False), prices_as="mistral",
                 prefixes=("mistral-", "codestral-", "ministral-", "devstral-")),
        Provider("deepseek", "https://api.deepseek.com/v1", ("chat",), ("DEEPSEEK_API_KEY",),
                 quirks=Quirks(json_schema=False, parallel_tools=False, seed=False),
                 prices_as="deepseek", prefixes=("deepseek-",)),
        Provider("xai", "https://api.x.ai/v1", ("chat", "responses"), ("XAI_API_KEY",),
                 prices_as="x-ai", prefixes=("grok-",)),
        Provider("together", "https://api.together.xyz/v1", ("chat",), ("TOGETHER_API_KEY",),
                 prices_as="together"),
        Provider("fireworks", "https://api.fireworks.ai/inference/v1", ("chat",),
                 ("FIREWORKS_API_KEY",), prices_as="fireworks"),
        Provider("ollama", "http://127.0.0.1:11434/v1", ("chat",), ("OLLAMA_API_KEY",),
                 ("OLLAMA_BASE_URL",), needs_key=False, quirks=_LOCAL, free=True),
        Provider("llamacpp", "http://127.0.0.1:8080/v1", ("chat", "responses"),
                 ("LLAMACPP_API_KEY",), ("LLAMACPP_BASE_URL",), needs_key=False,
                 quirks=_LOCAL, free=True),
        Provider("vllm", "http://127.0.0.1:8000/v1", ("chat", "responses"), ("VLLM_API_KEY",),
                 ("VLLM_BASE_URL",), needs_key=False, free=True),
        Provider("holdfast", None, ("chat", "responses", "anthropic"), ("HOLDFAST_GATEWAY_KEY",),
                 ("HOLDFAST_GATEWAY_URL",), needs_key=True),
        Provider("local", "", ("chat", "responses"), needs_key=False,
                 quirks=_LOCAL, free=True, kind="local"),
        Provider("scripted", "", (), needs_key=False, free=True, kind="scripted"),
    )
}  # fmt: skip
"""The providers known by name."""

_COMPATIBLE = {"google": "/openai", "cohere": "/compatibility/v1"}
"""How the addresses end at which a provider with a format of its own speaks OpenAI's."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")


def resolve_providers(config: GatewayConfig, environ: Mapping[str, str]) -> dict[str, Provider]:
    """Every provider, with the configuration's and the environment's word applied."""
    found: dict[str, Provider] = {}
    for name in [*KNOWN, *(name for name in config.providers if name not in KNOWN)]:
        if not _NAME.match(name):
            raise ConfigError(
                f"{name!r} is not a valid provider name", hint="lower case, such as my-lab"
            )
        known = KNOWN.get(name) or Provider(name, None, needs_key=False)
        found[name] = _resolve(known, config.providers.get(name), environ)
    return found


def _resolve(known: Provider, given: ProviderConfig | None, environ: Mapping[str, str]) -> Provider:
    base = _environ_base(known, environ) or known.base_url
    provider = known
    if given is not None:
        base = given.base_url or base
        quirks = known.quirks
        if given.max_tokens_field is not None:
            quirks = replace(quirks, max_tokens_field=given.max_tokens_field)
        if given.json_schema is not None:
            quirks = replace(quirks, json_schema=given.json_schema)
        if given.drop is not None:
            quirks = replace(quirks, drop=given.drop)
        provider = replace(
            known,
            formats=given.formats or known.formats,
            key_env=(given.key_env,) if given.key_env else given.key_envs or known.key_env,
            needs_key=known.needs_key or bool(given.key_env or given.key_envs),
            rpm=given.rpm,
            tpm=given.tpm,
            free=known.free if given.free is None else given.free,
            quirks=replace(quirks, headers={**quirks.headers, **given.headers}),
        )
    held = [name for name in provider.key_env if environ.get(name)]
    named = held[0] if held else None
    several = given is not None and len(given.key_envs) > 1 and not given.key_env
    keys = tuple(environ[name] for name in held) if several else ()
    provider = replace(provider, key=environ[named] if named else None, keys=keys)
    if known.name == "azure":
        provider = _azure(provider, named, environ)
    elif base and base.endswith(_COMPATIBLE.get(known.name, "-")):
        provider = replace(provider, formats=("chat",), format_paths={})
    elif provider.cloud is not None:
        provider, base = _in_cloud(provider, base, environ)
    return replace(provider, base_url=_checked(provider, base))


def _azure(provider: Provider, key_env: str | None, environ: Mapping[str, str]) -> Provider:
    """Azure's ways: a key or a token of Entra ID, and addresses by deployment with a version."""
    version = environ.get("OPENAI_API_VERSION")
    dated = version is not None and version not in ("preview", "latest", "v1")
    return replace(
        provider,
        auth="bearer" if key_env == "AZURE_OPENAI_AD_TOKEN" else provider.auth,
        formats=("chat",) if dated else provider.formats,
        api_version=version if dated else None,
    )


def _in_cloud(
    provider: Provider, base: str | None, environ: Mapping[str, str]
) -> tuple[Provider, str | None]:
    """The provider with its region and address, if the cloud's credentials are to be had."""
    if provider.cloud == "google":
        place = environ.get("GOOGLE_CLOUD_LOCATION") or "global"
        project = google_project(environ)
        if base is None and project and google_source(environ):
            host = "aiplatform" if place == "global" else f"{place}-aiplatform"
            base = (
                f"https://{host}.googleapis.com/v1/projects/{project}/locations/{place}"
                "/publishers/google"
            )
        return replace(provider, region=place), base
    region = aws_region(environ)
    if base is None and region and (provider.key or aws_source(environ)):
        base = f"https://bedrock-runtime.{region}.amazonaws.com"
    return replace(provider, region=region or "us-east-1"), base


def _environ_base(known: Provider, environ: Mapping[str, str]) -> str | None:
    base = next((value for name in known.base_env if (value := environ.get(name))), None)
    if base is None:
        return None
    base = base.rstrip("/")
    if known.name == "vertex":
        return None  # the variable names the project
    if known.name == "azure":
        version = environ.get("OPENAI_API_VERSION")
        if version is not None and version not in ("preview", "latest", "v1"):
            return f"{base.removesuffix('/openai')}/openai"
        return base if base.endswith("/v1") else f"{base}/openai/v1"
    if known.name in ("anthropic", "holdfast") and not base.endswith("/v1"):
        return f"{base}/v1"  # Anthropic's own client takes the address without /v1
    return base


def _checked(provider: Provider, base: str | None) -> str | None:
    if not base:
        return base
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{provider.name}: {base!r} is not a valid http(s) address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"{provider.name}: the base URL may hold no user, query or fragment",
            hint="keys belong into the environment",
        )
    return base.rstrip("/")


def _for_model(provider: Provider, model: str) -> Provider:
    """The provider as it is asked for this model: on Vertex, Claude has a format of its own."""
    own = "/publishers/google"
    if provider.cloud != "google" or not model.startswith("claude") or not provider.base_url:
        return provider
    base = f"{provider.base_url.removesuffix(own)}/publishers/anthropic"
    return replace(provider, formats=("anthropic",), base_url=base, quirks=_VERTEX_CLAUDE)


def why_unusable(provider: Provider) -> str | None:
    """Why no call can be made to this provider here; None if one can."""
    if provider.kind == "local":
        from holdfast.gateway.local import why_missing  # which imports this module

        return why_missing()
    if provider.kind == "scripted":
        return None
    if not provider.base_url:
        if provider.cloud == "aws":
            return "no AWS credentials, or AWS_REGION is not set"
        if provider.cloud == "google":
            return "no Google Cloud credentials, or GOOGLE_CLOUD_PROJECT is not set"
        wanted = " or ".join(provider.base_env) or f"providers.{provider.name}.base_url"
        return f"{wanted} is not set"
    if provider.needs_key and not provider.key:
        return f"{' or '.join(provider.key_env)} is not set"
    return None


_REMEMBERED = 1024
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A provider and its name for the model."""

    provider: Provider
    model: str

    @property
    def ref(self) -> str:
        return f"{self.provider.name}/{self.model}"


_SHARE, _EXPLORE = 0.3, 20
"""How much the latest answer counts in the average, and how seldom another model is tried."""


class Routes:
    """Resolves model names; remembers how quick each model was of late."""

    def __init__(self, config: GatewayConfig, providers: Mapping[str, Provider]) -> None:
        self._config, self._providers = config, providers
        self._found: dict[str, list[Candidate]] = {}
        self._seconds: dict[str, float] = {}
        self._turns = itertools.count()
        self._keyed: dict[tuple[str, str], Provider] = {}
        self._chance = random.Random()  # noqa: S311  no secret depends on it

    def candidates(self, name: str) -> list[Candidate]:
        """Who may serve `name`, in the order to try; raises UnknownModel if nobody can."""
        found = self._fixed(name)
        route = self._config.routes.get(name)
        if route is not None and len(found) > 1:
            found = self._ordered(route, found)
        if any(candidate.provider.keys for candidate in found):
            found = self._by_key(found)
        return found

    def note(self, candidate: Candidate, seconds: float) -> None:
        """A model answered, so quickly."""
        before = self._seconds.get(candidate.ref, seconds)
        self._seconds[candidate.ref] = before + _SHARE * (seconds - before)
        if len(self._seconds) > _REMEMBERED:
            self._seconds.pop(next(iter(self._seconds)))

    def _ordered(self, route: Route, found: list[Candidate]) -> list[Candidate]:
        """The candidates of a route, that which is asked first in front."""
        if route.by == "latency":
            if next(self._turns) % _EXPLORE == _EXPLORE - 1:
                first = self._chance.choice(found)  # or one that was slow once stays unasked
                return [first, *(one for one in found if one is not first)]
            return sorted(found, key=lambda one: self._seconds.get(one.ref, 0.0))
        weights = dict(zip(route.models, route.weights or (1.0,) * len(route.models), strict=True))
        left, ordered = list(found), list[Candidate]()
        while left:
            heavy = [max(weights.get(one.ref, 0.0), 1e-9) for one in left]
            [chosen] = self._chance.choices(left, heavy)
            left.remove(chosen)
            ordered.append(chosen)
        return ordered

    def _by_key(self, found: list[Candidate]) -> list[Candidate]:
        """Each candidate once for each key of its provider, each time with another in front."""
        turn = next(self._turns)
        every: list[Candidate] = []
        for candidate in found:
            keys = candidate.provider.keys
            if not keys:
                every.append(candidate)
                continue
            at = turn % len(keys)
            every.extend(
                Candidate(self._with_key(candidate.provider, key), candidate.model)
                for key in (*keys[at:], *keys[:at])
            )
        return every

    def _with_key(self, provider: Provider, key: str) -> Provider:
        known = self._keyed.get((provider.name, key))
        if known is None:
            known = self._keyed[provider.name, key] = replace(provider, key=key)
        return known

    def _fixed(self, name: str) -> list[Candidate]:
        found = self._found.get(name)
        if found is None:
            found = self._look_up(name)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[name] = found
        return found

    def _look_up(self, name: str) -> list[Candidate]:
        names = self._expand(name)
        found = [self._one(each) for each in names]
        usable = [candidate for candidate in found if why_unusable(candidate.provider) is None]
        if usable:
            return usable
        reasons = "; ".join(f"{c.ref}: {why_unusable(c.provider)}" for c in found)
        raise UnknownModel(
            f"no provider here can serve {name!r} ({reasons})",
            hint="`holdfast models list` shows what is usable here and why not",
        )

    def _expand(self, name: str) -> list[str]:
        """The name, its alias's models and their fallbacks, each once."""
        names: list[str] = []
        route = self._config.routes.get(name)
        for each in self._config.aliases.get(name, (name,)) if route is None else route.models:
            names.extend((each, *self._config.fallbacks.get(each, ())))
        names.extend(self._config.fallbacks.get(name, ()))
        return list(dict.fromkeys(names))

    def _one(self, name: str) -> Candidate:
        if not _MODEL.match(name) or ".." in name or "//" in name:
            raise UnknownModel(
                f"{name[:200]!r} is not a valid model name", hint="write provider/model"
            )
        head, slash, rest = name.partition("/")
        if slash and head in self._providers and rest:
            return Candidate(_for_model(self._providers[head], rest), rest)
        for provider in self._providers.values():
            if provider.prefixes and name.startswith(provider.prefixes):
                return Candidate(provider, name)
        known = [*self._providers, *self._config.aliases, *self._config.routes]
        hint = did_you_mean(head, known, "write provider/model, or define an alias")
        raise UnknownModel(f"unknown model {name!r}", hint=hint)
