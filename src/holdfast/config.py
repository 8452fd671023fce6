"""The one configuration: `holdfast.toml`, a profile in it, and environment variables.

    profile = "dev"                      # or HOLDFAST_PROFILE=prod

    [code]                               # a section per layer; HOLDFAST_CODE_MODEL does the same
    model = "anthropic/claude-sonnet-4.6"

    [profiles.prod.server]               # laid over [server] when the profile is prod
    host = "0.0.0.0"

A variable beats the profile, which beats the plain section. Each layer asks for its own section
and says what may be in it; a key it does not know is an error that names the nearest right one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.errors import ConfigError
from holdfast.typed_settings import build, from_text, scalar_fields, unknown

T = TypeVar("T")
FILE = "holdfast.toml"
SECTIONS = (
    "runtime",
    "gateway",
    "sandbox",
    "code",
    "repo",
    "server",
    "retention",
    "project",
    "temporal",
    "alerts",
)
PROFILES = ("dev", "prod")
"""Profiles everyone has, empty unless the file fills them; a file may add its own."""
_TOP = ("profile", "store", "engine", "profiles", *SECTIONS)
_PLAIN = (
    "HOLDFAST_CONFIG",
    "HOLDFAST_ENV_FILE",
    "HOLDFAST_PROFILE",
    "HOLDFAST_STORE",
    "HOLDFAST_ENGINE",
)
_OTHERS = ("HOLDFAST_GATEWAY_URL", "HOLDFAST_GATEWAY_KEY")
"""Variables that are no settings: the address and key of another Holdfast's gateway."""

Table = Mapping[str, Any]


def section(
    name: str,
    cls: type[T],
    environ: Mapping[str, str] = os.environ,
    *,
    profile: str | None = None,
) -> T:
    """The section `name` as the dataclass `cls`, variables laid over it; raises ConfigError.

    `profile`: this one, rather than that of the process.
    """
    if profile is not None:
        environ = {**environ, "HOLDFAST_PROFILE": profile}
    data = {**_table(read(environ).get(name, {}), name), **_variables(name, cls, environ)}
    return build(cls, data, name)


def store(environ: Mapping[str, str] = os.environ) -> str | None:
    """The store that a variable or the file names, if one does."""
    named = environ.get("HOLDFAST_STORE") or read(environ).get("store")
    if named is not None and not isinstance(named, str):
        raise ConfigError(f"store should be a path or an address, not {named!r}")
    return named or None


def engine(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where runs are carried out, if a variable or the file names another engine than ours."""
    named = environ.get("HOLDFAST_ENGINE") or read(environ).get("engine")
    if named is not None and not isinstance(named, str):
        raise ConfigError(f"engine should be an address, not {named!r}")
    return named or None


def given(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether anything is configured at all, beside where the store is."""
    named = any(n.startswith("HOLDFAST_") and n != "HOLDFAST_STORE" for n in environ)
    return named or Path(FILE).exists()


def read(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the file says, with its profile laid over it; an empty table without a file.

    The file is the one HOLDFAST_CONFIG names, or `holdfast.toml` in this folder.
    """
    file = _file(environ)
    return {**_laid_over(file.plain, file.overlay), "profile": file.profile}


def profiles(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The profiles that may be chosen, that of this process first."""
    file = _file(environ)
    return [file.profile, *(each for each in file.profiles if each != file.profile)]


def check_profile(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """The profile of this name; raises ConfigError if there is none."""
    return _file({**environ, "HOLDFAST_PROFILE": name}).profile


class _File(NamedTuple):
    """The file, its two layers apart."""

    path: Path
    plain: dict[str, Any]
    profile: str
    overlay: Table
    profiles: tuple[str, ...]


def origin(name: str, key: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the setting `key` of the section `name` comes from; None for the default.

    A section of "" is the top of the file: `store`, `profile`.
    """
    variable = "_".join(word for word in ("HOLDFAST", name.upper(), key.upper()) if word)
    if environ.get(variable):
        return f"${variable}"
    file = _file(environ)
    for data, place in ((file.overlay, f"profiles.{file.profile}"), (file.plain, "")):
        table = _table(data.get(name, {}), name) if name else data
        if key in table:
            inside = ".".join(word for word in (place, name) if word)
            return f"{file.path} [{inside}]" if inside else str(file.path)
    return None


def _file(environ: Mapping[str, str]) -> _File:
    named = environ.get("HOLDFAST_CONFIG")
    path = Path(named or FILE)
    data: dict[str, Any] = {}
    if named or path.exists():
        try:
            data = dict(_parsed(path.read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} can't be read: {error}") from error
    _check_names(data, _TOP, str(path))
    profiles = _table(data.pop("profiles", {}), "profiles")
    for name, overlay in profiles.items():
        _check_names(
            _table(overlay, f"profiles.{name}"), ("store", "engine", *SECTIONS), f"profiles.{name}"
        )
    known = tuple(dict.fromkeys((*PROFILES, *profiles)))
    chosen = environ.get("HOLDFAST_PROFILE") or data.get("profile") or PROFILES[0]
    if chosen not in known:
        raise unknown(str(chosen), list(known), "profile")
    overlay = _table(profiles.get(chosen, {}), str(chosen))
    return _File(path, data, str(chosen), overlay, known)


@lru_cache(maxsize=8)
def _parsed(text: str) -> Table:
    """The data of a file; every layer of a process asks for its section, and parses once."""
    return tomllib.loads(text)


def check_variables(environ: Mapping[str, str] = os.environ) -> None:
    """Raise for a HOLDFAST_… variable of no section: `section` looks at the rest."""
    prefixes = [f"HOLDFAST_{name.upper()}_" for name in SECTIONS]
    for variable in environ:
        if not variable.startswith("HOLDFAST_") or variable in _PLAIN:
            continue
        if not variable.startswith(tuple(prefixes)):
            raise unknown(variable, [*_PLAIN, *prefixes], "the environment")


def _check_names(data: Table, known: tuple[str, ...], where: str) -> None:
    for name in data:
        if name not in known:
            raise unknown(name, list(known), where)


def _table(value: object, path: str) -> Table:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} should be a table, not {value!r}")
    return cast("Table", value)


def _laid_over(below: Table, above: Table) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            merged[name] = _laid_over(cast("Table", under), cast("Table", value))
        else:
            merged[name] = value
    return merged


def _variables(name: str, cls: type[Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings that variables give, such as HOLDFAST_SERVER_PORT for `server.port`."""
    prefix = f"HOLDFAST_{name.upper()}_"
    fields = {f"{prefix}{field.upper()}": field for field in scalar_fields(cls)}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(prefix) or variable in _OTHERS or not text:
            continue
        if variable not in fields:
            raise unknown(variable, list(fields), "the environment")
        found[fields[variable]] = from_text(text, cls, fields[variable], variable)
    return found
