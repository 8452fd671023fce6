"""Arguments that many commands share, and a parser whose complaints are our errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.errors import UsageError

Handler = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """argparse, but wrong usage raises UsageError, so that it too can be shown as JSON."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help says how it is used")


def add_common(parser: argparse.ArgumentParser, handler: Handler) -> None:
    """The options of every verb, and what it does."""
    parser.add_argument(
        "--store",
        type=Path,
        metavar="PATH",
        help="the store's file (default: $HOLDFAST_STORE, or .holdfast/holdfast.db)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, errors included")
    parser.set_defaults(handler=handler, complain=parser.error)


def add_grace(parser: argparse.ArgumentParser, whose: str) -> None:
    """How long what is under way may take when `whose` process is stopped."""
    parser.add_argument(
        "--grace",
        default="10s",
        metavar="DURATION",
        help=f"how long steps may take to finish when the {whose} is stopped (10s)",
    )


def grace_seconds(options: argparse.Namespace) -> float:
    """What was said about that."""
    return parse_duration(options.grace)


def parse_duration(text: str) -> float:
    """A duration given on the command line, in seconds; a plain number is seconds."""
    from holdfast.durations import seconds

    return seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)


def store_path(options: argparse.Namespace) -> Path:
    """Where the store is: as asked for, or by default."""
    from holdfast.place import default_store

    named: Path | None = options.store
    return named if named is not None else default_store()


def parse_json(text: str, what: str) -> Any:
    """A JSON value given on the command line; `@FILE` reads it from a file, `-` from stdin."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} can't be read: {error}") from error
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{what} is no JSON: {error}",
            hint="""quote it for the shell, as in '{"n": 3}'; a text needs quotes of its own""",
        ) from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not part of JSON")


def parse_object(text: str, what: str) -> Mapping[str, Any]:
    """A JSON object given on the command line."""
    value = parse_json(text, what)
    if not isinstance(value, dict):
        raise UsageError(f"{what} is no JSON object", hint="name the arguments, as in '{\"n\": 3}'")
    return cast("dict[str, Any]", value)
