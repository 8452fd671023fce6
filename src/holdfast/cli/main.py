"""The `holdfast` command: finds the noun, runs its verb, and turns errors into exit codes.

One file per noun; a noun's module is imported only when it is used, so that the command starts
fast. Where it needs the gateway, the server or the agents, its handlers import them, so that help,
completion and wrong usage are fast as well. Each has `add(parser)`, which declares its verbs; a
verb sets `handler`, a function from the parsed arguments to the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager

from holdfast import __version__
from holdfast.cli import env_file, output
from holdfast.cli.options import Parser, add_store, leaves
from holdfast.errors import HoldfastError

NOUNS: dict[str, str] = {
    "run": "give the code agent a task, or run a workflow of yours, and follow it",
    "verify": "check the evidence of a run that passed again, on this machine",
    "init": "begin a project from a template, with tests, profiles and baselines",
    "repo": "give a coding agent a task on a git repo, and get a verified patch",
    "batch": "the tasks of a file, many at once, resumable, with a table at the end",
    "worker": "carry out runs until stopped",
    "serve": "the HTTP API and the inspector, with a worker",
    "inspect": "the inspector in a browser: every run, model call and sandbox, live",
    "runs": "list, show, watch and steer runs",
    "deploys": "which versions of workflows still have runs that have not ended",
    "simulate": "a workflow of yours and all that can go wrong, until an invariant breaks",
    "approvals": "list, show and decide what runs wait for",
    "alerts": "who is told of failed runs, approvals and budgets, and trying it",
    "schedules": "what starts runs by the clock: list, make, pause, trigger, backfill",
    "events": "send events to the runs that wait for them",
    "store": "back up, copy and describe the store",
    "doctor": "check this installation and the store, or the 28 points of a project",
    "blueprint": "a picture of your project: what it does, what a crash would do, what it needs",
    "gateway": "the model gateway over HTTP",
    "mcp": "runs, approvals and sandboxes as tools for an MCP client",
    "keys": "virtual keys for the gateway",
    "models": "the models usable here, and why not",
    "sandbox": "isolated execution: what works here, what runs, a way in",
    "config": "what is configured, and where each value comes from",
    "completion": "the names of commands and options for your shell to complete",
}
"""Noun (or top-level verb) to the line `holdfast --help` shows; the module has its name."""

DETACHED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    wants_json = "--json" in arguments
    output.prepare()
    try:
        env_file.load()
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
    except Exception as error:
        if not wants_json:
            raise
        # A program reads our output: it gets JSON also when the mistake is ours.
        traceback.print_exc()
        body = {"kind": "InternalError", "message": f"{type(error).__name__}: {error}"}
        output.show_json({"error": {**body, "hint": "this is a bug in Holdfast: report it"}})
        return 1


def _run(arguments: list[str]) -> int:
    if not arguments:
        build(()).print_help()
        return 0
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    parser = build({wanted})
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        used: Parser = getattr(options, "used", parser)
        used.complain(unknown)
    handler: Callable[[argparse.Namespace], int] = options.handler
    with _named_store(options):
        return handler(options)


@contextmanager
def _named_store(options: argparse.Namespace) -> Generator[None]:
    """`--store` is for all that the command does, in whatever layer: as the variable would be."""
    named, before = getattr(options, "store", None), os.environ.get("HOLDFAST_STORE")
    if named is None:
        yield
        return
    os.environ["HOLDFAST_STORE"] = str(named)
    try:
        yield
    finally:
        del os.environ["HOLDFAST_STORE"]
        if before is not None:
            os.environ["HOLDFAST_STORE"] = before


def build(wanted: Collection[str]) -> Parser:
    """The parser, with the verbs of the nouns that are wanted."""
    parser = Parser(prog="holdfast", description="Durable AI code agents on your own machines.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    nouns = parser.add_subparsers(dest="noun", metavar="COMMAND", required=True)
    for noun, summary in NOUNS.items():
        noun_parser = nouns.add_parser(noun, help=summary, description=_sentence(summary))
        if noun in wanted:
            importlib.import_module(f"holdfast.cli.{noun}").add(noun_parser)
            for leaf in leaves(noun_parser):
                add_store(leaf)
                leaf.set_defaults(used=leaf)
    return parser


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


if __name__ == "__main__":
    sys.exit(main())
