"""Arguments that many commands share, and a parser whose complaints are our errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.errors import UsageError
from holdfast.near_names import did_you_mean, near_name

Handler = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """argparse, but wrong usage raises UsageError, so that it too can be shown as JSON."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help says how it is used")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A command, verb or choice that there is: else the nearest is named."""
        if action.choices is None or value in action.choices:
            return
        if action.dest in GROUPS:
            message = f"{self.prog} has no command {value!r}"
        else:
            name = action.option_strings[-1] if action.option_strings else action.metavar
            message = f"{name}: there is no {value!r}"
        raise UsageError(message, hint=nearest(str(value), [str(each) for each in action.choices]))

    def complain(self, words: list[str]) -> NoReturn:
        """About words that nobody took: of a misspelt option, the right one is named."""
        message = f"unrecognized arguments: {' '.join(words)}"
        # Without their dashes, which all of them have in common.
        known = {option.lstrip("-"): option for option in self._option_string_actions}
        for word in words:
            name = word.partition("=")[0]
            near = known.get(near_name(name.lstrip("-"), known) or "")
            if name.startswith("-") and near not in (None, name):
                raise UsageError(message, hint=f"did you mean {near}?")
        self.error(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the name that was probably meant, or all that there are."""
    names = sorted(known)
    return did_you_mean(name, names, f"there are {', '.join(names) or 'none'}")


STORE_HELP = (
    "the store: a file, or postgresql://… (default: $HOLDFAST_STORE, or .holdfast/holdfast.db)"
)


GROUPS = ("noun", "verb")
"""Where the commands below a command are kept, by argparse's `dest`."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands that do something: nouns without verbs, and verbs."""
    groups = [a for a in parser._actions if a.dest in GROUPS]  # pyright: ignore[reportPrivateUsage]
    if not groups:
        yield parser
    for group in groups:
        for each in cast("dict[str, argparse.ArgumentParser]", group.choices).values():
            yield from leaves(each)


def add_store(parser: argparse.ArgumentParser) -> None:
    """`--store`, where a command has not declared it."""
    if "--store" not in parser._option_string_actions:  # pyright: ignore[reportPrivateUsage]
        parser.add_argument("--store", metavar="STORE", help=STORE_HELP)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where runs are carried out."""
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="where runs are carried out: temporal://HOST:PORT/NAMESPACE "
        "(default: $HOLDFAST_ENGINE, or here)",
    )


def add_common(parser: argparse.ArgumentParser, handler: Handler) -> None:
    """The options of every verb, and what it does."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, errors included")
    parser.set_defaults(handler=handler)


def add_modules(
    parser: argparse.ArgumentParser,
    what: str = "what defines your workflows; those of the ready-made agents are always there",
) -> None:
    """Where the workflows are that a command is about."""
    parser.add_argument("modules", nargs="*", metavar="FILE.py|MODULE", help=what)


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


def store_name(options: argparse.Namespace) -> str:
    """Where the store is: as asked for, or by default. A password is not in it."""
    from holdfast.session import default_store
    from holdfast.store import opener

    return opener.shown(options.store or default_store())


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
