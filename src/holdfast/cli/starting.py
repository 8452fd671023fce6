"""Starting a run and following it, or leaving it to a worker: what tasks and workflows share."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.cli import output
from holdfast.cli.configured import check_configuration
from holdfast.cli.options import parse_object, store_path
from holdfast.cli.runs import ending, exit_code, run_json, show_hint
from holdfast.errors import CodecError, UsageError
from holdfast.records import Event, Run
from holdfast.runtime.engine import Engine

Create = Callable[[], Awaitable[str]]
"""Starts the run (or finds the one with the key) on the engine that is open; its id."""
Follow = Callable[[Engine, str], Awaitable[int]]
"""Shows how a run goes until it ends; the exit code."""


def start_workflow(options: argparse.Namespace) -> int:
    """Start a run of one of the user's workflows."""
    place = options.what.rpartition(":")[0]

    async def create() -> str:
        from holdfast.cli.loading import load_workflow
        from holdfast.runtime.client import start_by_name

        workflow = load_workflow(options.what)
        input = json.dumps(dict(parse_object(options.input or "{}", "--input"))).encode()
        try:
            handle = await start_by_name(
                workflow.name, input, key=options.key, key_policy=options.key_policy
            )
        except CodecError as error:
            expected = f"{workflow.name}{inspect.signature(workflow.function)}"
            raise UsageError(f"--input: {error.message}", hint=f"it is {expected}") from error
        return handle.id

    async def follow_workflow(engine: Engine, run_id: str) -> int:
        from holdfast.cli.follow import Lines, follow

        if options.json:
            run, journal = await follow(engine, run_id, silent)
        else:
            output.note(run_id)
            run, journal = await follow(engine, run_id, Lines(sys.stderr, engine))
        _show_end(options, run, journal)
        return exit_code(run)

    return start(options, create, follow_workflow, f"holdfast worker {place}")


def start(options: argparse.Namespace, create: Create, follow: Follow, worker: str) -> int:
    """Start a run as the options say; `worker` is the command that carries it out."""
    check_configuration()
    started: list[str] = []
    command = f"{worker}{store_option(options)}"
    try:
        if options.detach:
            return asyncio.run(_detached(options, create, command))
        return asyncio.run(_followed(options, create, follow, started))
    except KeyboardInterrupt:
        _say_how_to_come_back(options, started, command)
        raise


async def _detached(options: argparse.Namespace, create: Create, command: str) -> int:
    from holdfast.runtime.app import open_engine

    async with open_engine(store_path(options), worker=False) as engine:
        run_id = await create()
        run = await engine.store.get(run_id)
        now = engine.clock.now()
        alive = [each for each in await engine.store.workers() if each.expires_at > now]
    if options.json:
        shown = run.as_json() if run else {}
        output.show_json({**shown, "workers": [each.id for each in alive]})
        return 0
    print(run_id)
    if run is not None and run.ended:
        output.note(f"it has {run.status} already")
    elif alive:
        names = ", ".join(f"{each.id} (pid {each.pid})" for each in alive[:3])
        output.note(f"carried out by a worker that knows its workflow; alive: {names}")
    else:
        output.note(f"no worker is alive, so nothing happens until one is: {command}")
    return 0


async def _followed(
    options: argparse.Namespace, create: Create, follow: Follow, started: list[str]
) -> int:
    from holdfast.runtime.app import open_engine

    async with open_engine(store_path(options)) as engine:
        run_id = await create()
        started.append(run_id)
        return await follow(engine, run_id)


def silent(_run: Run, _steps: Any) -> None:
    """Follow a run without showing it."""


def _show_end(options: argparse.Namespace, run: Run, journal: list[Event]) -> None:
    if options.json:
        output.show_json(run_json(run, journal))
        return
    output.note(ending(run))
    if run.status == "completed":
        output.show_json(json.loads(journal[-1].value or b"null"))
    else:
        show_hint(run, journal)


def _say_how_to_come_back(options: argparse.Namespace, started: list[str], command: str) -> None:
    if not started:
        return
    run_id, store = started[0], store_option(options)
    if options.json:
        output.show_json({"detached": run_id})
        return
    output.note(f"\ndetached: {run_id} is kept, and goes on when a worker runs")
    output.note(f"  go on    {command}")
    output.note(f"  watch    holdfast runs watch {run_id}{store}")
    output.note(f"  stop it  holdfast runs cancel {run_id}{store}")


def store_option(options: argparse.Namespace) -> str:
    """The option that leads another command to the same store."""
    return "" if options.store is None else f" --store {options.store}"
