"""`holdfast runs freeze`: a recorded run as a file that pytest replays."""

from __future__ import annotations

import argparse
import asyncio
import sys

from holdfast.cli import output
from holdfast.cli.options import add_common, add_modules, store_name
from holdfast.cli.store import find_run, visit
from holdfast.cli.workflow_files import load, load_agents
from holdfast.errors import Refused
from holdfast.ready.frozen_runs import FrozenRun, freeze, frozen_calls, known_redactor
from holdfast.runtime.definitions import registered


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", metavar="RUN", help="the run's id, its beginning, or latest")
    add_modules(parser, "what defines its workflow: noted for pytest, and replayed at once")
    add_common(parser, _freeze)


def _freeze(options: argparse.Namespace) -> int:
    load_agents()
    for named in options.modules:
        load(named)
    frozen = asyncio.run(_frozen(options))
    if options.modules:
        _check(frozen)
    sys.stdout.write(frozen.to_text())
    output.note(
        f"{frozen.run_id}: {len(frozen.journal)} events, {len(frozen.calls)} model replies; "
        "pytest -p holdfast.ready.pytest_plugin replays it"
    )
    return 0


async def _frozen(options: argparse.Namespace) -> FrozenRun:
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        journal = await engine.store.load(run.id)
        calls = await frozen_calls(store_name(options), journal)
    return freeze(run, journal, calls, options.modules, known_redactor())


def _check(frozen: FrozenRun) -> None:
    """A run whose body computes with a secret can't be replayed without it: say so now."""
    from holdfast.ready.replay_check import replay
    from holdfast.runtime.codec import MAX_BYTES

    workflow = registered().get(frozen.workflow)
    if workflow is None:
        raise Refused(f"none of the modules defines the workflow {frozen.workflow!r}")
    found = replay(workflow, frozen.journal, max_payload=MAX_BYTES)
    if found.error is not None:
        raise Refused(
            f"{frozen.run_id} does not replay once its secrets are masked: {found.message}",
            hint="holdfast runs check says whether it does with them; if so, its body computes "
            "with a secret, which belongs into a step",
        )
