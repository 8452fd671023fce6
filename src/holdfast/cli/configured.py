"""The whole configuration, checked before anything begins."""

from __future__ import annotations

from holdfast import config


def check_configuration() -> None:
    """Raise ConfigError for anything in the file or the environment that nobody understands.

    Each layer reads its own section when it is used; a mistake in another one should not wait
    for that.
    """
    if not config.given():
        return
    from holdfast.agents.code.settings import CodeSettings
    from holdfast.agents.repo.settings import RepoSettings
    from holdfast.gateway.config import GatewayConfig
    from holdfast.runtime.settings import Settings
    from holdfast.sandbox.settings import SandboxSettings
    from holdfast.server.settings import ServerSettings

    config.check_variables()
    config.section("runtime", Settings)
    config.section("gateway", GatewayConfig)
    config.section("sandbox", SandboxSettings)
    config.section("code", CodeSettings)
    config.section("repo", RepoSettings)
    config.section("server", ServerSettings)
