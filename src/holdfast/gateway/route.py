"""From the model asked for to those that may serve it, in order.

A name is an alias, a `provider/model`, or a bare model name whose provider is known by its first
letters. Names are data from outside: they choose among configured providers, nothing more.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import UnknownModel
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.providers import Provider, why_unusable

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


class Routes:
    """Resolves model names."""

    def __init__(self, config: GatewayConfig, providers: Mapping[str, Provider]) -> None:
        self._config, self._providers = config, providers
        self._found: dict[str, list[Candidate]] = {}

    def candidates(self, name: str) -> list[Candidate]:
        """Who may serve `name`, in the order to try; raises UnknownModel if nobody can."""
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
        for each in self._config.aliases.get(name, (name,)):
            names.extend((each, *self._config.fallbacks.get(each, ())))
        names.extend(self._config.fallbacks.get(name, ()))
        return list(dict.fromkeys(names))

    def _one(self, name: str) -> Candidate:
        if not _MODEL.match(name) or ".." in name or "//" in name:
            raise UnknownModel(f"{name[:200]!r} is no model's name", hint="write provider/model")
        head, slash, rest = name.partition("/")
        if slash and head in self._providers and rest:
            return Candidate(self._providers[head], rest)
        for provider in self._providers.values():
            if provider.prefixes and name.startswith(provider.prefixes):
                return Candidate(provider, name)
        known = [*self._providers, *self._config.aliases]
        near = difflib.get_close_matches(head, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "write provider/model, or define an alias"
        raise UnknownModel(f"nobody here knows the model {name!r}", hint=hint)
