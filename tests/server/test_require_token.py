"""`[server] require_token`: no server without a token, whoever can reach it."""

import pytest

from holdfast.errors import ConfigError
from holdfast.server.settings import ServerSettings


def test_a_server_that_requires_a_token_does_not_start_without_one_even_on_loopback() -> None:
    with pytest.raises(ConfigError, match="require_token"):
        ServerSettings(require_token=True).check_reach()
    ServerSettings(require_token=True, token="0123456789abcdef").check_reach()
    ServerSettings().check_reach()
