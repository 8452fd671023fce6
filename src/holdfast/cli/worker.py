"""`holdfast worker`: carry out runs until stopped, then finish what is under way and hand back."""

from __future__ import annotations

import argparse
import asyncio
import logging

from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.options import add_common, add_grace, grace_seconds, store_path
from holdfast.cli.signals import stopped_by_signals
from holdfast.cli.step_log import telling
from holdfast.errors import UsageError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "modules",
        nargs="*",
        metavar="FILE.py|MODULE",
        help="what defines your workflows; those of the ready-made agents are always there",
    )
    parser.add_argument("--quiet", action="store_true", help="no line for each finished step")
    add_grace(parser, "worker")
    add_common(parser, _worker)


def _worker(options: argparse.Namespace) -> int:
    from holdfast.cli.workflow_files import load, load_agents
    from holdfast.runtime.definitions import registered

    grace = grace_seconds(options)
    check_configuration()
    known = load_agents()
    for named in options.modules:
        load(named)
    if options.modules and set(registered()) == known:
        raise UsageError(
            f"{', '.join(options.modules)} defines no workflow", hint="mark one with @workflow"
        )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return asyncio.run(_work(options, grace, sorted(registered())))


async def _work(options: argparse.Namespace, grace: float, workflows: list[str]) -> int:
    from holdfast.runtime.app import open_engine

    path = store_path(options)
    stop = stopped_by_signals()
    async with open_engine(path, grace=grace) as engine:
        worker = engine.me
        if options.json:
            facts = {"worker": worker.id, "pid": worker.pid, "store": str(path)}
            output.show_json({**facts, "workflows": workflows})
        else:
            output.note(f"worker {worker.id} (pid {worker.pid}) on {path}")
            output.note(f"workflows: {', '.join(workflows)}")
            output.note("Ctrl-C stops it; runs are kept and go on with the next worker")
        async with telling(engine, quiet=options.quiet, json=options.json):
            name = await stop
        held = len(engine.runs)
        if not options.json:
            output.note(f"{name}: finishing steps for up to {grace:g} s, then giving runs back")
    if options.json:
        output.show_json({"stopped": name, "given_back": held})
    else:
        output.note("stopped")
    return 0
