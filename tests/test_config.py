"""One file, its profiles and the environment: strict, and helpful about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest

from holdfast import config
from holdfast.errors import ConfigError
from holdfast.typed_settings import DURATION


@dataclass(frozen=True)
class Server:
    host: str = "127.0.0.1"
    port: int = 7420
    open: bool = False
    grace: float = field(default=5.0, metadata=DURATION)
    budget: Decimal | None = None
    level: Literal["low", "high"] = "low"
    hosts: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)


def write(folder: Path, text: str, **environ: str) -> dict[str, str]:
    path = folder / "holdfast.toml"
    path.write_text(text)
    return {"HOLDFAST_CONFIG": str(path), **environ}


def server(environ: dict[str, str]) -> Server:
    return config.section("server", Server, environ)


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert server({}) == Server()


def test_a_profile_is_laid_over_the_plain_section(tmp_path: Path) -> None:
    text = """
    [server]
    port = 1
    limits = {a = 1, b = 2}
    [profiles.prod.server]
    host = "0.0.0.0"
    limits = {b = 3}
    """
    assert server(write(tmp_path, text)) == Server(port=1, limits={"a": 1, "b": 2})
    prod = server(write(tmp_path, text, HOLDFAST_PROFILE="prod"))
    assert prod == Server(host="0.0.0.0", port=1, limits={"a": 1, "b": 3})
    assert server(write(tmp_path, f'profile = "prod"\n{text}')) == prod


def test_a_variable_beats_the_file(tmp_path: Path) -> None:
    environ = write(
        tmp_path,
        "[server]\nport = 1\n",
        HOLDFAST_SERVER_PORT="2",
        HOLDFAST_SERVER_OPEN="yes",
        HOLDFAST_SERVER_GRACE="1m",
        HOLDFAST_SERVER_BUDGET="0.25",
        HOLDFAST_SERVER_LEVEL="high",
        HOLDFAST_SERVER_HOSTS="a.example, b.example",
        HOLDFAST_SERVER_HOST="",
    )
    assert server(environ) == Server(
        port=2, open=True, grace=60.0, budget=Decimal("0.25"), level="high",
        hosts=("a.example", "b.example"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said", "near"),
    [
        ("[server]\nprot = 1", "server: there is no 'prot'", "'port'"),
        ("[sever]\nport = 1", "there is no 'sever'", "'server'"),
        ("stor = 'x'", "there is no 'stor'", "'store'"),
        ("profile = 'pord'", "profile: there is no 'pord'", "'prod'"),
        ("[profiles.prod.sandbx]", "profiles.prod: there is no 'sandbx'", "'sandbox'"),
        ("[server]\nport = 'x'", "server.port should be of type int", ""),
        ("[server]\nport = true", "server.port should be of type int", ""),
        ("[server]\ngrace = 'soon'", "server.grace: 'soon' is no duration", "90s"),
        ("[server]\nlevel = 'hihg'", "server.level: there is no 'hihg'", "'high'"),
        ("server = 1", "server should be a table", ""),
        ("[server", "can't be read", ""),
        ("store = 3", "store should be a path", ""),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest_right_name(
    tmp_path: Path, text: str, said: str, near: str
) -> None:
    environ = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        config.store(environ)
        server(environ)
    assert said in error.value.message
    assert near in (error.value.hint or "")


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_SERVER_PROT") as error:
        server({"HOLDFAST_SERVER_PROT": "1"})
    assert "HOLDFAST_SERVER_PORT" in (error.value.hint or "")
    with pytest.raises(ConfigError, match="HOLDFAST_SERVR_PORT"):
        config.check_variables({"HOLDFAST_SERVR_PORT": "1"})
    config.check_variables({"HOLDFAST_STORE": "x", "HOLDFAST_GATEWAY_URL": "x", "OTHER": "y"})


def test_a_variable_that_is_no_number_or_truth_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"server.port should be of type int"):
        server({"HOLDFAST_SERVER_PORT": "many"})
    with pytest.raises(ConfigError, match="HOLDFAST_SERVER_OPEN should be true or false"):
        server({"HOLDFAST_SERVER_OPEN": "perhaps"})


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        config.read({"HOLDFAST_CONFIG": str(tmp_path / "missing.toml")})


def test_the_file_may_name_the_store(tmp_path: Path) -> None:
    environ = write(tmp_path, 'store = "jobs.db"\n')
    assert config.store(environ) == "jobs.db"
    assert config.store({**environ, "HOLDFAST_STORE": "other.db"}) == "other.db"


def test_a_file_is_parsed_once_for_all_its_sections_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    real = config.tomllib.loads

    def counting(text: str) -> dict[str, object]:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(config.tomllib, "loads", counting)
    environ = write(tmp_path, '[server]\nport = 8001\n\n[profiles.prod.server]\nhost = "::"\n')
    assert [server(environ).port for _ in range(3)] == [8001] * 3
    assert server({**environ, "HOLDFAST_PROFILE": "prod"}).host == "::"
    assert len(parsed) == 1
    assert server(write(tmp_path, "[server]\nport = 8002\n")).port == 8002
    assert len(parsed) == 2
