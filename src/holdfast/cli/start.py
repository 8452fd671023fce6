"""`holdfast start`: start a run of one of the user's workflows and follow it."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
from typing import Any

from holdfast.cli import output
from holdfast.cli.options import add_common, parse_object, store_path
from holdfast.cli.runs import ending, exit_code, run_json, show_hint
from holdfast.errors import CodecError, UsageError
from holdfast.records import Event, Run


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("workflow", metavar="FILE.py:WORKFLOW", help="also MODULE:WORKFLOW")
    parser.add_argument(
        "--input",
        default="{}",
        metavar="JSON",
        help="the arguments, as an object; @FILE reads a file, - reads stdin",
    )
    parser.add_argument("--key", help="start at most one run with this key; return it if it exists")
    parser.add_argument(
        "--detach", action="store_true", help="print the run's id and leave it to a worker"
    )
    add_common(parser, _start)


def _start(options: argparse.Namespace) -> int:
    started: list[str] = []
    try:
        return asyncio.run(_detached(options) if options.detach else _followed(options, started))
    except KeyboardInterrupt:
        _say_how_to_come_back(options, started)
        raise


async def _created(options: argparse.Namespace) -> str:
    """Start the run (or find the one with the key) on the engine that is open; its id."""
    from holdfast.cli.loading import load_workflow
    from holdfast.runtime.client import start_by_name

    workflow = load_workflow(options.workflow)
    input = json.dumps(dict(parse_object(options.input, "--input"))).encode()
    try:
        handle = await start_by_name(workflow.name, input, key=options.key)
    except CodecError as error:
        expected = f"{workflow.name}{inspect.signature(workflow.function)}"
        raise UsageError(f"--input: {error.message}", hint=f"it is {expected}") from error
    return handle.id


async def _detached(options: argparse.Namespace) -> int:
    from holdfast.runtime.app import open_engine

    async with open_engine(store_path(options), worker=False) as engine:
        run_id = await _created(options)
        run = await engine.store.get(run_id)
    if options.json:
        output.show_json(run.as_json() if run else None)
        return 0
    print(run_id)
    place = options.workflow.rpartition(":")[0]
    output.note(f"a worker carries it out: holdfast worker {place}{_store_option(options)}")
    return 0


async def _followed(options: argparse.Namespace, started: list[str]) -> int:
    from holdfast.cli.follow import Lines, follow
    from holdfast.runtime.app import open_engine

    async with open_engine(store_path(options)) as engine:
        run_id = await _created(options)
        started.append(run_id)
        if options.json:
            run, journal = await follow(engine, run_id, _silent)
        else:
            output.note(run_id)
            run, journal = await follow(engine, run_id, Lines(sys.stderr, engine))
    _show_end(options, run, journal)
    return exit_code(run)


def _silent(_run: Run, _steps: Any) -> None:
    return


def _show_end(options: argparse.Namespace, run: Run, journal: list[Event]) -> None:
    if options.json:
        output.show_json(run_json(run, journal))
        return
    output.note(ending(run))
    if run.status == "completed":
        output.show_json(json.loads(journal[-1].value or b"null"))
    else:
        show_hint(run, journal)


def _say_how_to_come_back(options: argparse.Namespace, started: list[str]) -> None:
    if not started:
        return
    run_id, store = started[0], _store_option(options)
    if options.json:
        output.show_json({"detached": run_id})
        return
    place = options.workflow.rpartition(":")[0]
    output.note(f"\ndetached: {run_id} is kept, and goes on when a worker runs")
    output.note(f"  go on    holdfast worker {place}{store}")
    output.note(f"  watch    holdfast runs watch {run_id}{store}")
    output.note(f"  stop it  holdfast runs cancel {run_id}{store}")


def _store_option(options: argparse.Namespace) -> str:
    return "" if options.store is None else f" --store {options.store}"
