"""`.env` and `config show`: what is set, and where that comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import env_file
from holdfast.errors import ConfigError

from .conftest import Holdfast

CONFIG = """
[server]
port = 1111
host = "127.0.0.2"

[profiles.prod.server]
port = 2222
"""


def shown(holdfast: Holdfast, *options: str) -> dict[str, tuple[object, str]]:
    found = holdfast("config", "show", "--json", *options).json["settings"]
    return {each["name"]: (each["value"], each["origin"]) for each in found}


def test_each_value_is_shown_with_where_it_comes_from(holdfast: Holdfast) -> None:
    holdfast.environment.pop("HOLDFAST_CODE_CHECK_TESTS")
    (holdfast.folder / "holdfast.toml").write_text(CONFIG)
    (holdfast.folder / ".env").write_text(
        "HOLDFAST_CODE_ATTEMPTS=7\nHOLDFAST_SERVER_TOKEN=hush-hush-hush-hush\nOPENAI_API_KEY='sk-1'\n"
    )
    holdfast.environment["HOLDFAST_PROFILE"] = "prod"
    found = shown(holdfast)
    assert found["server.port"] == (2222, "holdfast.toml [profiles.prod.server]")
    assert found["server.host"] == ("127.0.0.2", "holdfast.toml [server]")
    assert found["profile"] == ("prod", "$HOLDFAST_PROFILE")
    assert found["store"] == (str(holdfast.store), "$HOLDFAST_STORE")
    assert found["code.attempts"] == (7, "$HOLDFAST_CODE_ATTEMPTS in .env")
    assert found["code.model"] == (None, "default")
    assert found["OPENAI_API_KEY"] == ("(set, not shown)", "$OPENAI_API_KEY in .env")
    whole = holdfast("config", "show")
    assert "hush-hush-hush-hush" not in whole.out and "sk-1" not in whole.out
    assert set(shown(holdfast, "--set", "code")) == {"code.attempts"}


def test_the_real_environment_counts_more_than_the_file(holdfast: Holdfast) -> None:
    (holdfast.folder / ".env").write_text("HOLDFAST_CODE_ATTEMPTS=7\n")
    holdfast.environment["HOLDFAST_CODE_ATTEMPTS"] = "2"
    assert shown(holdfast)["code.attempts"] == (2, "$HOLDFAST_CODE_ATTEMPTS")


def test_another_file_can_be_named_and_none(holdfast: Holdfast) -> None:
    (holdfast.folder / ".env").write_text("HOLDFAST_CODE_ATTEMPTS=7\n")
    (holdfast.folder / "mine.env").write_text("HOLDFAST_CODE_ATTEMPTS=8\n")
    holdfast.environment["HOLDFAST_ENV_FILE"] = "mine.env"
    assert shown(holdfast)["code.attempts"] == (8, "$HOLDFAST_CODE_ATTEMPTS in mine.env")
    holdfast.environment["HOLDFAST_ENV_FILE"] = ""
    assert shown(holdfast)["code.attempts"] == (3, "default")
    holdfast.environment["HOLDFAST_ENV_FILE"] = "gone.env"
    assert "there is no file gone.env" in holdfast("runs", "list").err


def test_lines_are_read_as_shells_write_them() -> None:
    text = """# a comment
A=1
export B="two\\nlines" # and a comment
C='x # y'
D=plain text # a comment
E=
F=a#b
G="over
two lines"
 H = 5
"""
    assert env_file.parse(text) == {
        "A": "1", "B": "two\nlines", "C": "x # y", "D": "plain text", "E": "", "F": "a#b",
        "G": "over\ntwo lines", "H": "5",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"\.env, line 2: this is no NAME=value"):
        env_file.parse("A=1\nsome words\n")


@given(
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=40))
)
def test_what_is_quoted_comes_back(values: dict[str, str]) -> None:
    values = {name: text.replace("\r\n", "\n") for name, text in values.items()}
    quoted = {name: text.replace("\\", "\\\\").replace('"', '\\"') for name, text in values.items()}
    text = "".join(f'{name}="{value}"\n' for name, value in quoted.items())
    assert env_file.parse(text) == values


def test_what_decides_about_programs_is_not_taken_from_the_folder() -> None:
    environ = {"HOLDFAST_ENV_FILE": "/dev/null"}
    for name in ("LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "PATH", "GIT_SSH_COMMAND"):
        assert env_file._LOADING.fullmatch(name), name
    for name in ("OPENAI_API_KEY", "HOLDFAST_STORE", "PATHS", "DATABASE_URL"):
        assert not env_file._LOADING.fullmatch(name), name
    env_file.load(environ)
    assert environ == {"HOLDFAST_ENV_FILE": "/dev/null"}
