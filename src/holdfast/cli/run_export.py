"""`holdfast runs export` and `import`: a run as one file, and that file into another store."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common, store_name
from holdfast.cli.store import find_run, visit
from holdfast.errors import Refused, UsageError
from holdfast.runtime.app import open_engine
from holdfast.runtime.run_archive import RunArchive, export_run, import_runs


def add_export(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    parser.add_argument("run", metavar="RUN", help="the run's id, its beginning, or latest")
    parser.add_argument("--out", metavar="FILE", help="where it goes (stdout)")
    add_common(parser, _export)


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `import`."""
    parser.add_argument("file", metavar="FILE", help="what `export` wrote; - reads stdin")
    add_common(parser, _import)


def _export(options: argparse.Namespace) -> int:
    archive = asyncio.run(_exported(options))
    text = archive.to_text()
    if options.out is None:
        sys.stdout.write(text)
        return 0
    _write(Path(options.out), text)
    ids = [each.run.id for each in archive.runs]
    if options.json:
        output.show_json({"file": options.out, "runs": ids})
        return 0
    events = sum(len(each.journal) for each in archive.runs)
    calls = sum(len(each.calls) for each in archive.runs)
    output.note(
        f"{ids[0]}: {len(ids)} run{'s' * (len(ids) != 1)}, {events} events, {calls} model calls "
        f"in {options.out}, with all that they recorded, secrets included"
    )
    return 0


async def _exported(options: argparse.Namespace) -> RunArchive:
    async with visit(options) as engine:
        run = await find_run(engine.store, options.run)
        return await export_run(engine.store, store_name(options), run.id)


def _write(path: Path, text: str) -> None:
    """For its owner alone, and over nothing."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Refused(f"{path} exists", hint="name another file") from error
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error}") from error


def _import(options: argparse.Namespace) -> int:
    archive = RunArchive.of_text(_read(options.file))
    made = asyncio.run(_imported(options, archive))
    first = archive.runs[0].run
    if options.json:
        there = [each.run.id for each in archive.runs if each.run.id not in made]
        output.show_json({"run": first.id, "imported": made, "existed": there})
        return 0
    print(first.id, flush=True)
    if made:
        output.note(
            f"{len(made)} run{'s' * (len(made) != 1)} of {first.workflow}, in {store_name(options)}"
        )
    else:
        output.note("it is in this store already")
    return 0


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} can't be read: {error}") from error


async def _imported(options: argparse.Namespace, archive: RunArchive) -> list[str]:
    async with open_engine(store_name(options), worker=False) as engine:
        return await import_runs(engine.store, store_name(options), archive)
