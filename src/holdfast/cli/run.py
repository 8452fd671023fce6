"""`holdfast run`: give the code agent a task, or run a workflow of your own; and follow it."""

from __future__ import annotations

import argparse
import re
from typing import get_args

from holdfast.cli.options import add_common
from holdfast.errors import UsageError
from holdfast.store.base import KeyPolicy

_WORKFLOW = re.compile(r"[\w./~-]+:\w+|\S+\.py")
"""FILE.py:WORKFLOW or MODULE:WORKFLOW; a lone file is one whose workflow was forgotten."""
_OF_TASKS = ("language", "model", "test_model", "attempts", "budget", "package", "out")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "what",
        metavar="TASK | FILE.py:WORKFLOW",
        help="a task in plain English for the code agent; or one of your workflows "
        "(MODULE:WORKFLOW as well)",
    )
    task = parser.add_argument_group("a task")
    task.add_argument("--language", metavar="NAME", help="python (default), typescript, javascript")
    task.add_argument("--model", metavar="PROVIDER/MODEL", help="writes the program")
    task.add_argument(
        "--test-model", metavar="PROVIDER/MODEL", help="writes the tests (default: the same)"
    )
    task.add_argument("--attempts", type=int, metavar="N", help="at most so many rounds (3)")
    task.add_argument("--budget", metavar="USD", help="the most that the run may spend")
    task.add_argument(
        "--package",
        action="append",
        metavar="NAME",
        help="a package the program may use; may be repeated",
    )
    task.add_argument("--out", metavar="DIR", help="where to write the program and its tests")
    own = parser.add_argument_group("a workflow")
    own.add_argument(
        "--input",
        metavar="JSON",
        help="the arguments, as an object; @FILE reads a file, - reads stdin",
    )
    parser.add_argument("--key", help="start at most one run with this key; return it if it exists")
    own.add_argument(
        "--key-policy",
        choices=get_args(KeyPolicy),
        default="return",
        metavar="POLICY",
        help=f"if the run with the key has ended: {', '.join(get_args(KeyPolicy))} (return)",
    )
    parser.add_argument(
        "--detach", action="store_true", help="print the run's id and leave it to a worker"
    )
    add_common(parser, _run)


def _run(options: argparse.Namespace) -> int:
    if _WORKFLOW.fullmatch(options.what):
        for name in _OF_TASKS:
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for tasks, and {options.what} is a workflow",
                    hint="hand its arguments over with --input",
                )
        from holdfast.cli.start_run import start_workflow

        return start_workflow(options)
    if options.input is not None:
        raise UsageError(
            "--input is for workflows, and this is a task",
            hint="a workflow is named as FILE.py:WORKFLOW",
        )
    from holdfast.cli.start_run import start_task

    return start_task(options)
