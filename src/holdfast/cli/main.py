"""The `holdfast` command: finds the noun, runs its verb, and turns errors into exit codes.

One file per noun; a noun's module is imported only when it is used, so that the command
starts fast. Each has `add(parser)`, which declares its verbs; a verb sets `handler`, a
function from the parsed arguments to the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from holdfast import __version__
from holdfast.cli import output
from holdfast.errors import HoldfastError

NOUNS: dict[str, str] = {
    "sandbox": "isolated execution: what works here, what runs, a way in",
}
"""Noun (or top-level verb) to the line `holdfast --help` shows; the module has its name."""

DETACHED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    wants_json = "--json" in arguments
    try:
        return _run(arguments)
    except HoldfastError as error:
        output.show_error(error, json=wants_json)
        return error.exit_code
    except KeyboardInterrupt:
        return DETACHED
    except BrokenPipeError:
        # The reader of our output went away; that is its right. Point stdout elsewhere so
        # that the interpreter's own flush at exit does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="holdfast", description="Durable AI code agents on your own machines."
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    nouns = parser.add_subparsers(dest="noun", metavar="COMMAND", required=True)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for noun, summary in NOUNS.items():
        noun_parser = nouns.add_parser(noun, help=summary, description=summary)
        if noun == wanted:
            importlib.import_module(f"holdfast.cli.{noun}").add(noun_parser)
    options = parser.parse_args(arguments)
    handler: Callable[[argparse.Namespace], int] = options.handler
    return handler(options)


if __name__ == "__main__":
    sys.exit(main())
