"""`holdfast store`: backup, copy, info, prune, vacuum; and how a command visits it."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common, store_name
from holdfast.errors import NotFound, Refused, StoreError, UsageError
from holdfast.records import Run
from holdfast.runtime.app import open_engine
from holdfast.runtime.engine import Engine
from holdfast.store import opener
from holdfast.store.base import RunFilter, Store


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "copy the store while runs go on"
    backup = verbs.add_parser("backup", help=summary, description=f"{summary.capitalize()}.")
    backup.add_argument("file", type=Path, metavar="FILE", help="where the copy goes")
    backup.add_argument(
        "--verify",
        action="store_true",
        help="open the copy as a store and read every event in it before it is called a backup",
    )
    add_common(backup, _backup)
    summary = "copy a store to another place or kind: a file to PostgreSQL, or back"
    copying = verbs.add_parser("copy", help=summary, description=f"{summary.capitalize()}.")
    copying.add_argument("source", metavar="FROM", help="the store that there is; no workers on it")
    copying.add_argument("target", metavar="TO", help="where it goes: nothing, or an empty store")
    add_common(copying, _copy_store)
    summary = "say where the store is and what is in it"
    info = verbs.add_parser("info", help=summary, description=f"{summary.capitalize()}.")
    add_common(info, _info)
    summary = "delete the runs whose time is over, as [retention] says; workers do so once an hour"
    pruning = verbs.add_parser("prune", help=summary, description=f"{summary.capitalize()}.")
    pruning.add_argument("--dry-run", action="store_true", help="only count them")
    add_common(pruning, _prune)
    summary = "give the space of what was deleted back; writers wait meanwhile"
    vacuum = verbs.add_parser("vacuum", help=summary, description=f"{summary.capitalize()}.")
    add_common(vacuum, _vacuum)


def _backup(options: argparse.Namespace) -> int:
    target: Path = options.file
    if target.exists():
        raise Refused(f"{target} exists", hint="a backup replaces nothing: name another file")
    if not os.access(target.parent, os.W_OK):
        raise StoreError(f"{target} can't be written", hint="the folder must exist and be yours")
    # Under another name until it is whole, so that what is named as asked for can be trusted.
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        asyncio.run(_copy(options, partial))
        verified = asyncio.run(_verify(partial)) if options.verify else {}
        partial.rename(target)
    except OSError as error:
        raise StoreError(f"{target} can't be written: {error}") from error
    finally:
        for left in target.parent.glob(f"{partial.name}*"):
            left.unlink()
    size = target.stat().st_size
    if options.json:
        output.show_json({"file": str(target), "bytes": size, **verified})
    else:
        counts = [f"{count:,} {what}" for what, count in verified.items()]
        read = f", {' and '.join(counts)} read back" if counts else ""
        output.note(f"{target}: {size:,} bytes{read}")
    return 0


async def _copy(options: argparse.Namespace, target: Path) -> None:
    async with visit(options) as engine:
        await engine.store.backup(target)


async def _verify(copy: Path) -> dict[str, int]:
    """Read all of a copy as its next owner would; raises StoreError for what can't be read."""
    runs = events = 0
    async with open_engine(copy, worker=False) as engine:
        cursor: str | None = None
        while True:
            page = await engine.store.list_runs(RunFilter(), 1000, cursor)
            for run in page.runs:
                runs += 1
                events += len(await engine.store.load(run.id))
            cursor = page.cursor
            if cursor is None:
                return {"runs": runs, "events": events}


def _copy_store(options: argparse.Namespace) -> int:
    from holdfast.store.store_copy import copy  # for this command alone

    source, target = opener.absolute(options.source), opener.absolute(options.target)
    done = copy(source, target)
    if options.json:
        facts = {"from": opener.shown(source), "to": opener.shown(target)}
        output.show_json({**facts, "resumed": done.resumed, "rows": done.rows})
        return 0
    for table, count in sorted(done.rows.items()):
        print(f"{count:>10,}  {table}")
    how = ", going on with what was there" if done.resumed else ""
    output.note(f"{sum(done.rows.values()):,} rows copied, read back and compared{how}")
    return 0


def _info(options: argparse.Namespace) -> int:
    health = opener.examine(store_name(options))
    if not health.exists:
        raise StoreError(
            f"there is no store at {health.path}", hint="holdfast run and worker make one"
        )
    if health.problem is not None:
        raise health.problem
    if options.json:
        output.show_json(health.as_json())
        return 0
    total = sum(health.runs.values())
    by_status = ", ".join(f"{count} {status}" for status, count in health.runs.items())
    print(f"store    {health.path}, {health.bytes:,} bytes")
    print(f"schema   {health.schema_version}")
    print(f"runs     {total}{f' ({by_status})' if by_status else ''}")
    print(f"workers  {', '.join(health.workers) or 'none'}")
    return 0


def _prune(options: argparse.Namespace) -> int:
    from holdfast import config
    from holdfast.runtime.retention import Pruned, RetentionSettings, prune
    from holdfast.sandbox.run_snapshots import delete_orphans

    settings = config.section("retention", RetentionSettings)
    if not settings.has_rules:
        raise UsageError("no run's time is ever over", hint="the [retention] section says when")

    async def do() -> Pruned:
        async with visit(options) as engine:
            done = await prune(engine, settings, dry_run=options.dry_run)
            await delete_orphans(engine.store.get)
            return done

    done = asyncio.run(do())
    if options.json:
        output.show_json({"deleted": done.deleted, "refused": done.refused})
    else:
        for workflow, count in sorted(done.deleted.items()):
            print(f"{count:>8,}  {output.plain(workflow)}")
        later = f", {done.refused:,} are still needed" if done.refused else ""
        what = "would be deleted" if options.dry_run else "deleted"
        output.note(f"{done.total:,} runs {what}{later}")
    return 0


def _vacuum(options: argparse.Namespace) -> int:
    async def do() -> int:
        async with visit(options) as engine:
            return await engine.store.vacuum()

    freed = asyncio.run(do())
    if options.json:
        output.show_json({"bytes": freed})
    else:
        output.note(f"{freed:,} bytes given back")
    return 0


# --- a command's visit to the store ---


LATEST = "latest"
"""Stands for the run that was started last; not for one that another run started."""


@asynccontextmanager
async def visit(options: argparse.Namespace) -> AsyncGenerator[Engine]:
    """The store that exists, opened to look and to steer; runs are carried out elsewhere."""
    path = store_name(options)
    if not opener.exists(path):
        raise StoreError(
            f"there is no store at {path}",
            hint="`holdfast run` and `holdfast worker` make one; --store or HOLDFAST_STORE "
            "names another place",
        )
    async with open_engine(path, worker=False) as engine:
        yield engine


async def find_run(store: Store, named: str) -> Run:
    """The run with this id, or the only one whose id begins so; or the latest."""
    if named == LATEST:
        newest = await store.list_runs(RunFilter(top_level=True), 1, None)
        if not newest.runs:
            raise NotFound("there is no run yet", hint="holdfast run makes one")
        return newest.runs[0]
    prefix = named if named.startswith("run_") else f"run_{named}"
    prefix = f"run_{prefix[4:].upper()}"
    exact = await store.get(prefix)
    if exact is not None:
        return exact
    # Ids are listed downwards from a cursor, and "~" sorts behind every character of an id:
    # if any begin with the prefix, they come first.
    page = await store.list_runs(RunFilter(), 2, f"{prefix}~")
    found = [run for run in page.runs if run.id.startswith(prefix)]
    if not found:
        raise NotFound(f"there is no run {named}", hint="holdfast runs list shows what there is")
    if len(found) > 1:
        raise UsageError(
            f"several runs begin with {named}", hint=f"say more of it: {found[0].id}, {found[1].id}"
        )
    return found[0]
