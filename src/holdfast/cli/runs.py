"""`holdfast runs`: list, show, watch, check, update, cancel, pause, resume, retry, fork, delete."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, get_args

from holdfast.cli import deploy_check, freeze, output, run_export, run_text
from holdfast.cli.options import (
    Handler,
    add_common,
    parse_duration,
    parse_json,
    parse_object,
    store_name,
)
from holdfast.cli.progress import Progress, StepsAsJson, follow
from holdfast.cli.run_text import About, about_runs
from holdfast.cli.store import find_run, visit
from holdfast.errors import UsageError
from holdfast.ids import new_id
from holdfast.records import Event, Run, Status
from holdfast.runtime import updates
from holdfast.runtime.bulk import MAY_BE, steer_all
from holdfast.runtime.client import get_run
from holdfast.runtime.engine import Engine
from holdfast.runtime.forking import UNCHANGED
from holdfast.runtime.step_records import steps_of
from holdfast.sandbox.run_snapshots import delete_orphans
from holdfast.store.base import RunFilter

SHOWN_CHARACTERS = 300
CODE_AGENT = "evaluate_code"
"""The workflow whose steps are shown with tokens and cost, and whose result is files."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, handler: Handler) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        if name not in ("list", "bulk"):
            made.add_argument("run", metavar="RUN", help="the run's id, its beginning, or latest")
        add_common(made, handler)
        return made

    listing = verb("list", "list runs, newest first", _list)
    _add_filter(listing)
    listing.add_argument(
        "--top-level", action="store_true", help="only runs that no other run started"
    )
    listing.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many (50)")
    listing.add_argument("--cursor", metavar="RUN", help="go on behind this run")

    showing = verb("show", "show a run and its steps", _show)
    showing.add_argument("--full", action="store_true", help="cut nothing short")
    watching = verb("watch", "follow a run until it ends", _watch)
    watching.add_argument(
        "--out", metavar="DIR", help="write the code agent's program and its tests there"
    )
    updating = verb("update", "send a run an update and print what it answers", _update)
    updating.add_argument("name", metavar="NAME", help="the update's name")
    updating.add_argument(
        "--payload", metavar="JSON", default="null", help="@FILE reads a file, - reads stdin"
    )
    updating.add_argument("--id", help="carry it out once; asked again, print the same answer")
    updating.add_argument(
        "--timeout", metavar="DURATION", default="30s", help="how long to wait for the answer (30s)"
    )
    verb("cancel", "ask a run to stop; its finally blocks still run", _cancel)
    verb("terminate", "end a run that does not stop, without its finally blocks", _terminate)
    verb("pause", "let the steps under way finish and begin nothing new", _pause)
    verb("resume", "let a paused or stuck run go on", _resume)
    verb("retry", "let a failed run go on from where it failed", _retry)
    verb("delete", "delete a run that has ended, with all that belongs to it", _delete)
    holding = verb("hold", "let nobody delete a run, nor retention", _hold)
    holding.add_argument("--reason", required=True, metavar="TEXT", help="why; goes on record")
    holding.add_argument("--by", metavar="NAME", help="who holds it (you)")
    verb("release", "let a held run be deleted again", _release)
    bulk = verb("bulk", "cancel, terminate, retry or delete all runs that fit a filter", _bulk)
    bulk.add_argument("action", choices=tuple(MAY_BE), metavar="ACTION", help=", ".join(MAY_BE))
    _add_filter(bulk)
    bulk.add_argument(
        "--older-than", metavar="DURATION", help="only runs that were started so long ago"
    )
    bulk.add_argument("--all", action="store_true", help="without a filter: every run")
    bulk.add_argument("--dry-run", action="store_true", help="only count the runs that fit")
    summary = "replay all runs on the code of today, and say which would be stuck"
    deploy_check.add(
        verbs.add_parser("check", help=summary, description=f"{summary.capitalize()}.")
    )
    summary = "print a run as a file that pytest replays, without its secrets"
    freeze.add(verbs.add_parser("freeze", help=summary, description=f"{summary.capitalize()}."))
    summary = "write an ended run as one file, child runs and model calls included"
    run_export.add_export(
        verbs.add_parser("export", help=summary, description=f"{summary.capitalize()}.")
    )
    summary = "put an exported run into this store, as it was"
    run_export.add_import(
        verbs.add_parser("import", help=summary, description=f"{summary.capitalize()}.")
    )
    forking = verb("fork", "start a new run from what another did before a step", _fork)
    forking.add_argument(
        "--from", dest="from_step", metavar="STEP", help="key of the step to go on from"
    )
    forking.add_argument("--input", metavar="JSON", help="arguments to replace, as an object")
    forking.add_argument("--result", metavar="JSON", help="the step's result, instead of doing it")


def _add_filter(parser: argparse.ArgumentParser) -> None:
    """Which runs."""
    parser.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=get_args(Status),
        metavar="STATUS",
        help=f"only runs in this state; may be repeated ({', '.join(get_args(Status))})",
    )
    parser.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only runs with this attribute; may be repeated",
    )


def _filter(options: argparse.Namespace) -> RunFilter:
    return RunFilter(
        workflow=options.workflow,
        status=tuple(options.status),
        attributes=dict(_attribute(text) for text in options.attribute),
    )


# --- looking ---


def _list(options: argparse.Namespace) -> int:
    return asyncio.run(_list_runs(options))


async def _list_runs(options: argparse.Namespace) -> int:
    where = replace(_filter(options), top_level=options.top_level)
    async with visit(options) as engine:
        page = await engine.store.list_runs(where, options.limit, options.cursor)
        now = engine.clock.now()
        details = await about_runs(store_name(options), [run.id for run in page.runs])
    if options.json:
        runs = [{**run.as_json(), **details[run.id].as_json()} for run in page.runs]
        output.show_json({"runs": runs, "cursor": page.cursor})
        return 0
    output.table(
        ("RUN", "WORKFLOW", "STATUS", "AGE", "TOOK", "COST", "ABOUT"),
        (_row(run, now, details[run.id]) for run in page.runs),
    )
    if page.cursor:
        output.note(f"there are more: --cursor {page.cursor}")
    return 0


def _row(run: Run, now: float, about: About) -> tuple[str, ...]:
    took = ""
    if run.started_at is not None:
        took = output.duration((run.finished_at or now) - run.started_at)
    age = output.duration(now - run.created_at)
    words = output.short(about.words, 60)
    if run.error:
        words = f"{words}  {output.short(run.error, 60)}".lstrip()
    name = run.workflow if run.parent_id is None else f"↳ {run.workflow}"
    return run.id, name, run.status, age, took, about.cost_text, words


def _attribute(text: str) -> tuple[str, Any]:
    """`region=eu` or `attempts=3`: a value that reads as a number or boolean is one."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{text!r} is no attribute", hint="write it as NAME=VALUE")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, str | int | float | bool) else value


def _show(options: argparse.Namespace) -> int:
    return asyncio.run(_show_run(options))


async def _show_run(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        journal = await engine.store.load(run.id)
        published = await engine.store.published(run.id)
        queue = await engine.store.queue_place(run.id)
        now = engine.clock.now()
        spent = await run_text.spending(store_name(options), run.id)
    if options.json:
        shown = {each.name: each.as_json() for each in published}
        run_json = {
            **run_text.run_json(run, journal),
            "published": shown,
            "queue": None if queue is None else queue.as_json(),
        }
        output.show_json({**run_json, "spent": spent.as_json()})
        return 0
    limit = sys.maxsize // 8 if options.full else SHOWN_CHARACTERS
    said = [("published", f"{each.name}: {each.value.decode()}") for each in published]
    if queue is not None:
        said.insert(0, ("waits", queue.text(now)))
    for name, text in [*run_text.header(run, journal, now), *spent.lines, *said]:
        print(f"{output.dim(f'{name:<12}')} {output.short(text, limit)}")
    steps = steps_of(journal)
    if steps:
        print()
        headings = ("", "STEP", "NAME", "STATUS", "ATTEMPTS", "TOOK", "RESULT")
        width = limit if options.full else 60
        names = Counter(step.name for step in steps)
        output.table(headings, [_step_row(step, names, now, width) for step in steps])
    _show_failure(run, journal, full=options.full)
    return 0


def _step_row(step: run_text.Step, names: Counter[str], now: float, width: int) -> tuple[str, ...]:
    called = run_text.step_name(step)
    if run_text.needs_telling(step, names):
        called = f"{called} {output.short(run_text.told_apart(step), width // 2)}".rstrip()
    took = step.seconds if step.seconds is not None else now - step.started_at
    result = str(step.error) if step.error else run_text.result_words(step)
    return (
        output.SYMBOLS[step.status],
        step.key,
        called,
        step.status,
        str(step.attempts),
        output.duration(took),
        output.short(result, width),
    )


def _show_failure(run: Run, journal: list[Event], *, full: bool) -> None:
    """Say why a run failed or does not go on, and what to do."""
    failure = run_text.failure_of(run, journal)
    if failure is not None:
        print(f"\n{run.status}: {output.plain(str(failure))}")
        text = failure.traceback
        for line in text.rstrip().splitlines() if full else run_text.innermost(text):
            print(f"  {output.plain(line)}")
        for line in run_text.origins(failure):
            print(line)
    run_text.show_hint(run, journal)


def _update(options: argparse.Namespace) -> int:
    return asyncio.run(_update_run(options))


async def _update_run(options: argparse.Namespace) -> int:
    payload = parse_json(options.payload, "--payload")
    timeout = parse_duration(options.timeout)
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        sent = await updates.send(
            engine, run.id, options.name, payload, options.id or new_id("upd")
        )
        if not sent.ended:
            sent = await updates.ended(engine, run.id, sent.id, timeout)
    if options.json:
        output.show_json(sent.as_json())
        return 0 if sent.status == "answered" else 1
    output.show_json(updates.outcome(sent))
    return 0


def _watch(options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_watch_run(options))
    except KeyboardInterrupt:
        if not options.json:
            again = f"holdfast runs watch {output.plain(options.run)}"
            output.note(f"\ndetached: the run goes on; {again} comes back to it")
        raise


async def _watch_run(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        if run.workflow == CODE_AGENT and not options.json:
            from holdfast.cli.run import follow_task  # brings the code agent along

            print(f"{run.id}  {output.plain(run.workflow)}", flush=True)
            return await follow_task(engine, run.id, out=options.out, asked=options.out, json=False)
        if options.json:
            run, journal = await follow(engine, run.id, StepsAsJson())
            output.show_json({"run": run_text.run_json(run, journal)})
        else:
            print(f"{run.id}  {output.plain(run.workflow)}", flush=True)
            run, journal = await follow(engine, run.id, Progress(sys.stdout, engine, run.id))
            print(run_text.ending(run))
            run_text.show_hint(run, journal)
    return run_text.exit_code(run)


# --- steering ---


def _steer(
    options: argparse.Namespace, said: str, act: Callable[[Engine, str], Awaitable[object]]
) -> int:
    async def steer() -> tuple[Run, bool]:
        async with visit(options) as engine:
            found = await find_run(engine.store, options.run)
            await act(engine, found.id)
            run = await engine.store.get(found.id) or found
            return run, run.status in ("pending", "queued") and not await _worked_on(engine)

    run, idle = asyncio.run(steer())
    if options.json:
        output.show_json(run.as_json())
        return 0
    output.note(f"{run.id}: {said}, now {run.status}")
    if idle:
        output.note(
            "no worker is alive, so nothing happens until one is: holdfast worker FILE.py, "
            f"with the file that defines {run.workflow}"
        )
    return 0


async def _worked_on(engine: Engine) -> bool:
    """Whether a worker is alive on this store."""
    now = engine.clock.now()
    return any(each.expires_at > now for each in await engine.store.workers())


def _cancel(options: argparse.Namespace) -> int:
    return _steer(
        options, "asked to stop", lambda e, run: e.store.request(run, "cancel", e.clock.now())
    )


def _terminate(options: argparse.Namespace) -> int:
    return _steer(
        options, "asked to end", lambda e, run: e.store.request(run, "terminate", e.clock.now())
    )


def _pause(options: argparse.Namespace) -> int:
    return _steer(
        options, "asked to pause", lambda e, run: e.store.request(run, "pause", e.clock.now())
    )


def _resume(options: argparse.Namespace) -> int:
    return _steer(options, "resumed", lambda e, run: e.store.resume(run, e.clock.now()))


def _retry(options: argparse.Namespace) -> int:
    return _steer(options, "retried", lambda e, run: e.store.retry(run, e.clock.now()))


def _hold(options: argparse.Namespace) -> int:
    from getpass import getuser

    from holdfast.store.retention import Hold

    who = options.by or getuser()
    return _steer(
        options,
        "held",
        lambda e, run: e.store.hold(Hold(run, options.reason, who, e.clock.now())),
    )


def _release(options: argparse.Namespace) -> int:
    return _steer(options, "released", lambda e, run: e.store.release_hold(run))


def _delete(options: argparse.Namespace) -> int:
    return asyncio.run(_delete_run(options))


async def _delete_run(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        deleted = await engine.store.delete(run.id, engine.clock.now())
        await delete_orphans(engine.store.get)
    if options.json:
        output.show_json({"deleted": deleted})
    else:
        more = len(deleted) - 1
        output.note(f"{run.id}: deleted" + (f", with {more} runs it had called" if more else ""))
    return 0


def _bulk(options: argparse.Namespace) -> int:
    return asyncio.run(_bulk_runs(options))


async def _bulk_runs(options: argparse.Namespace) -> int:
    where = _filter(options)
    if where == RunFilter() and options.older_than is None and not options.all:
        raise UsageError(
            "no filter was given", hint="name one, such as --workflow; --all means every run"
        )
    async with visit(options) as engine:
        if options.older_than is not None:
            before = engine.clock.now() - parse_duration(options.older_than)
            where = replace(where, created_before=before)
        result = await steer_all(engine, options.action, where, dry_run=options.dry_run)
        if options.action == "delete":
            await delete_orphans(engine.store.get)
    if options.json:
        output.show_json({**vars(result), "dry_run": options.dry_run})
    elif options.dry_run:
        output.note(f"{options.action} would concern {result.matched} runs")
    else:
        refused = f", {result.refused} refused" if result.refused else ""
        output.note(f"{options.action}: {result.done} of {result.matched} runs{refused}")
    return 0


def _fork(options: argparse.Namespace) -> int:
    return asyncio.run(_fork_run(options))


async def _fork_run(options: argparse.Namespace) -> int:
    input = None if options.input is None else parse_object(options.input, "--input")
    result = UNCHANGED if options.result is None else parse_json(options.result, "--result")
    async with visit(options) as engine:
        source = await find_run(engine.store, options.run)
        handle = await get_run(source.id)
        forked = await handle.fork(options.from_step, input=input, result=result)
        run = await forked.record()
    if options.json:
        output.show_json(run.as_json())
    else:
        print(run.id)
        output.note(f"forked from {source.id}: holdfast runs watch {run.id}")
    return 0
