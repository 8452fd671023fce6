"""The `[code]` and `[repo]` sections: what the agents do unless a run says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from holdfast import config
from holdfast.agents.code.records import TestCheck
from holdfast.sandbox.settings import BackendName
from holdfast.session import caller
from holdfast.typed_settings import DURATION


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What both sections have."""

    model: str | None = None
    """Writes the code; None: the best that is usable here."""
    attempts: int = 3
    """Rounds: after each the tests are run, and what failed is told."""
    budget: Decimal | None = None
    """US dollars a run may spend; None: no limit but those of the gateway."""
    max_tokens: int = 8192
    """For one reply."""


@dataclass(frozen=True, slots=True)
class CodeSettings(AgentSettings):
    """Settings of the code agent."""

    test_model: str | None = None
    """Writes the tests; None: the same as the program."""
    test_timeout: float = field(default=30.0, metadata=DURATION)
    """For one run of the tests."""
    check_tests: TestCheck = "quick"
    """How closely tests that passed are looked at: off, quick, thorough."""
    min_score: float | None = None
    """Share of wrong programs that the tests must refuse for a run to pass; None: any."""
    parallel_tests: int | None = None
    """Programs under test at once in a process; None: as many as there are processors."""
    memory: str = "1gb"
    """Of a sandbox, its files included."""
    pids: int = 128


@dataclass(frozen=True, slots=True)
class RepoSettings(AgentSettings):
    """Settings of the repo agent. A model that is not set here is chosen as for the code agent."""

    max_steps: int = 60
    """Model calls in one round."""
    max_time: float = field(default=3600.0, metadata=DURATION)
    """For the whole run, all its tries together."""
    test_timeout: float = field(default=300.0, metadata=DURATION)
    command_timeout: float = field(default=120.0, metadata=DURATION)
    """For one command of the agent."""
    memory: str = "2gb"
    """Of a sandbox, its files included."""
    pids: int = 256
    backend: BackendName = "auto"


PROFILE = "profile"
"""The attribute of a run that names the profile whose settings it is carried out with."""


def code_settings(profile: str | None = None) -> CodeSettings:
    """From `holdfast.toml` and the environment; in a step, by the profile of its run."""
    return config.section("code", CodeSettings, profile=profile or _profile_of_run())


def repo_settings() -> RepoSettings:
    """From `holdfast.toml` and the environment; in a step, by the profile of its run."""
    return config.section("repo", RepoSettings, profile=_profile_of_run())


def _profile_of_run() -> str | None:
    """What the run was started with; None: as its worker was."""
    context = caller().context
    return None if context is None else context.run.attributes.get(PROFILE)
