"""`holdfast deploys`: which versions of workflows still have runs, and whether this code has them.

For deploys side by side: a worker that takes only its own versions (`--own-version`) may be stopped
when nothing is left for it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from holdfast.cli import output
from holdfast.cli.options import add_common, add_modules, store_name
from holdfast.cli.workflow_files import load
from holdfast.errors import StoreError
from holdfast.runtime.definitions import registered
from holdfast.store import opener
from holdfast.store.inspection import OpenVersion


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_modules(parser, "what defines your workflows: says which versions this code has")
    add_common(parser, _deploys)


def _deploys(options: argparse.Namespace) -> int:
    for named in options.modules:
        load(named)
    found = asyncio.run(_open_versions(options))
    here = {name: each.version for name, each in registered().items()} if options.modules else {}
    if options.json:
        output.show_json({"versions": [_as_json(each, here) for each in found]})
        return 0
    rows = [
        [
            output.short(each.workflow, 40),
            each.version,
            _whose(each, here),
            str(sum(each.runs.values())),
            ", ".join(f"{number} {status}" for status, number in each.runs.items()),
            output.duration(time.time() - each.oldest),
        ]
        for each in found
    ]
    output.table(["WORKFLOW", "VERSION", "CODE", "OPEN", "RUNS", "OLDEST"], rows)
    return 0


async def _open_versions(options: argparse.Namespace) -> list[OpenVersion]:
    name = store_name(options)
    if not opener.exists(name):
        raise StoreError(f"there is no store at {name}", hint="holdfast run and worker make one")
    inspection = opener.inspection(name)
    try:
        return await inspection.ask(lambda view: view.open_versions())
    finally:
        inspection.close()


def _whose(found: OpenVersion, here: dict[str, str]) -> str:
    if found.workflow not in here:
        return ""
    return "this" if here[found.workflow] == found.version else "other"


def _as_json(found: OpenVersion, here: dict[str, str]) -> dict[str, Any]:
    return {
        "workflow": found.workflow,
        "version": found.version,
        "this_code": None if found.workflow not in here else _whose(found, here) == "this",
        "open": sum(found.runs.values()),
        "runs": found.runs,
        "oldest": found.oldest,
    }
