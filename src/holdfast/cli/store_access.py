"""A command's visit to the store: open it without working on it, and find what was named."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.cli.options import store_path
from holdfast.errors import NotFound, StoreError, UsageError
from holdfast.records import Run
from holdfast.runtime.app import open_engine
from holdfast.runtime.engine import Engine
from holdfast.store.base import RunFilter, Store

LATEST = "latest"
"""Stands for the run that was started last."""


@asynccontextmanager
async def visit(options: argparse.Namespace) -> AsyncGenerator[Engine]:
    """The store that exists, opened to look and to steer; runs are carried out elsewhere."""
    path = store_path(options)
    if not path.exists():
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
        newest = await store.list_runs(RunFilter(), 1, None)
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
