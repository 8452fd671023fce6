"""The whole configuration, checked before anything begins."""

from __future__ import annotations

from typing import Any

from holdfast import config


def sections() -> dict[str, type[Any]]:
    """The settings of every layer, by the name of its section."""
    from holdfast.agents.code.settings import CodeSettings
    from holdfast.agents.repo.settings import RepoSettings
    from holdfast.gateway.config import GatewayConfig
    from holdfast.runtime.settings import Settings
    from holdfast.sandbox.settings import SandboxSettings
    from holdfast.server.settings import ServerSettings

    return {
        "runtime": Settings,
        "gateway": GatewayConfig,
        "sandbox": SandboxSettings,
        "code": CodeSettings,
        "repo": RepoSettings,
        "server": ServerSettings,
    }


def check_configuration() -> None:
    """Raise ConfigError for anything in the file or the environment that nobody understands.

    Each layer reads its own section when it is used; a mistake in another one should not wait
    for that.
    """
    if not config.given():
        return
    config.check_variables()
    for name, settings in sections().items():
        config.section(name, settings)
