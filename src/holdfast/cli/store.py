"""`holdfast store`: backup, info."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common, store_path
from holdfast.errors import Refused, StoreError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "copy the store while runs go on"
    backup = verbs.add_parser("backup", help=summary, description=f"{summary.capitalize()}.")
    backup.add_argument("file", type=Path, metavar="FILE", help="where the copy goes")
    add_common(backup, _backup)
    summary = "say where the store is and what is in it"
    info = verbs.add_parser("info", help=summary, description=f"{summary.capitalize()}.")
    add_common(info, _info)


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
        partial.rename(target)
    except OSError as error:
        raise StoreError(f"{target} can't be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    size = target.stat().st_size
    if options.json:
        output.show_json({"file": str(target), "bytes": size})
    else:
        output.note(f"{target}: {size:,} bytes")
    return 0


async def _copy(options: argparse.Namespace, target: Path) -> None:
    from holdfast.cli.store_access import visit

    async with visit(options) as engine:
        await engine.store.backup(target)


def _info(options: argparse.Namespace) -> int:
    from holdfast.store import opener

    health = opener.examine(store_path(options))
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
