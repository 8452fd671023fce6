"""`holdfast config`: each setting, its value, where that comes from, and the file's schema."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
from typing import Any

from holdfast import config
from holdfast.cli import env_file, output
from holdfast.cli.options import add_common, store_name

_SECRET = re.compile(r"token|secret|password|(^|_)key$", re.IGNORECASE)
_KEYS = re.compile(r"[A-Z0-9_]*_(API_KEY|BASE_URL)|HOLDFAST_GATEWAY_(URL|KEY)")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "each setting, its value, and where that comes from"
    show = verbs.add_parser("show", help=summary, description=f"{summary.capitalize()}.")
    show.add_argument(
        "section", nargs="?", choices=config.SECTIONS, metavar="SECTION",
        help=f"only one: {', '.join(config.SECTIONS)}",
    )  # fmt: skip
    show.add_argument("--set", action="store_true", help="only what is not the default")
    add_common(show, _show)
    summary = "the JSON schema of holdfast.toml, for editors"
    schema = verbs.add_parser("schema", help=summary, description=f"{summary.capitalize()}.")
    add_common(schema, _schema)


def _schema(_options: argparse.Namespace) -> int:
    from holdfast.ready.toml_schema import schema

    output.show_json(schema(sections()))
    return 0


@dataclasses.dataclass(frozen=True)
class Setting:
    """One value, as shown."""

    name: str
    value: Any
    origin: str | None


def _show(options: argparse.Namespace) -> int:
    config.check_variables()
    found = list(settings(options))
    if options.set:
        found = [each for each in found if each.origin is not None]
    if options.json:
        shown = [
            {"name": each.name, "value": each.value, "origin": each.origin or "default"}
            for each in found
        ]
        output.show_json({"settings": shown})
        return 0
    rows = [(each.name, _text(each.value), each.origin or "default") for each in found]
    output.table(("SETTING", "VALUE", "FROM"), rows)
    return 0


def settings(options: argparse.Namespace) -> list[Setting]:
    """Everything that can be set, as it is."""
    found: list[Setting] = []
    if options.section is None:
        given = "--store" if "store" in vars(options) and options.store is not None else None
        found.append(
            Setting("profile", config.read()["profile"], _from(config.origin("", "profile")))
        )
        found.append(
            Setting("store", str(store_name(options)), given or _from(config.origin("", "store")))
        )
        found.append(Setting("engine", config.engine(), _from(config.origin("", "engine"))))
    for name, cls in sections().items():
        if options.section in (None, name):
            made = config.section(name, cls)
            for field in dataclasses.fields(cls):
                value = _plain(getattr(made, field.name))
                if _SECRET.search(field.name) and isinstance(value, str) and value:
                    value = "(set, not shown)"
                origin = _from(config.origin(name, field.name))
                found.append(Setting(f"{name}.{field.name}", value, origin))
    if options.section is None:
        for variable in sorted(filter(_KEYS.fullmatch, os.environ)):
            secret = variable.endswith("KEY")
            value = "(set, not shown)" if secret else os.environ[variable]
            found.append(Setting(variable, value, _from(f"${variable}")))
    return found


def _from(origin: str | None) -> str | None:
    """A variable that `.env` gave is named with its file."""
    file = env_file.loaded.get(origin.removeprefix("$")) if origin else None
    return f"{origin} in {file}" if file else origin


def _plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    return "–" if value is None else output.short(json.dumps(value, ensure_ascii=False), 60)


# --- the check that commands make before they begin ---


def sections() -> dict[str, type[Any]]:
    """The settings of every layer, by the name of its section."""
    from holdfast.agents.settings import CodeSettings, RepoSettings
    from holdfast.gateway.config import GatewayConfig
    from holdfast.ready.project_settings import ProjectSettings
    from holdfast.runtime.retention import RetentionSettings
    from holdfast.runtime.settings import Settings
    from holdfast.sandbox.settings import SandboxSettings
    from holdfast.server.alert_settings import AlertSettings
    from holdfast.server.settings import ServerSettings
    from holdfast.temporal.temporal_settings import TemporalSettings

    return {
        "runtime": Settings,
        "gateway": GatewayConfig,
        "sandbox": SandboxSettings,
        "code": CodeSettings,
        "repo": RepoSettings,
        "server": ServerSettings,
        "retention": RetentionSettings,
        "project": ProjectSettings,
        "temporal": TemporalSettings,
        "alerts": AlertSettings,
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
