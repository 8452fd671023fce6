"""Snapshots that last as long as runs do: which runs need one, removed after the last of them.

A workspace that is kept in a step belongs to the step's run; a run that opens it (a fork, a run
that goes on as another, a parent) needs it as well from then on. Runs are deleted in the store, by
any process on any machine, and nobody tells us: the command or request that deletes runs, each
worker once an hour and `sandbox gc` look which runs are not there any more. A look that is cut
short is made good by the next.

A snapshot that is not marked as somebody's was taken for its own sake, and is not ours to remove.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast import session
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.sandbox.snapshots import KeptFor, Snapshot, get_snapshot
from holdfast.sandbox.state import default_state
from holdfast.session import current_step
from holdfast.store import opener

log = logging.getLogger("holdfast.sandbox")

EVERY_SECONDS = 3600.0
NOBODY = KeptFor("nobody", "")
"""Kept outside of any run: until somebody deletes it."""
Look = Callable[[str], Awaitable[object | None]]
"""Finds a run of the store that is open, or None."""


def current_run() -> KeptFor:
    """The run of the step that is executing, and its store."""
    step, store = current_step(), session.opened_store()
    return NOBODY if step is None or store is None else KeptFor(step.run_id, _name(store))


def _name(store: str) -> str:
    return opener.shown(opener.absolute(store))


def adopt(snapshot: Snapshot) -> None:
    """The run that is executing needs this snapshot too, if it belongs to runs at all."""
    run = current_run()
    if run is not NOBODY and snapshot.marks.is_dir():
        run.mark(snapshot.folder)


def _marked(state: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Where snapshots are marked as somebody's, the newest first: the runs and their stores."""
    for marks in sorted(state.glob("snapshots/snap_*/kept_for"), reverse=True):
        needed_by: dict[str, str] = {}
        for mark in marks.glob("[!.]*"):
            with suppress(FileNotFoundError):  # somebody else is looking as well
                needed_by[mark.name] = mark.read_text()
        yield marks, needed_by


def release(state: Path, gone: set[str]) -> list[str]:
    """These runs need nothing any more: remove what no other does; gives the snapshots removed.

    What a newer snapshot is built on goes with that one.
    """
    removed: list[str] = []
    for marks, needed_by in _marked(state):
        for run_id in gone & needed_by.keys():
            (marks / run_id).unlink(missing_ok=True)
        if needed_by.keys() <= gone:
            with suppress(NotFound, Refused):
                get_snapshot(state, marks.parent.name).delete()
                removed.append(marks.parent.name)
    return removed


async def delete_orphans(find: Look, state: Path | None = None) -> list[str]:
    """Remove what belonged to runs of the open store that it has no more."""
    state, store = state or default_state(), session.opened_store()
    found = await asyncio.to_thread(lambda: list(_marked(state)))
    ours: set[str] = set()
    for _, needed_by in found if store is not None else ():
        ours |= {run_id for run_id, where in needed_by.items() if where == _name(store or "")}
    gone = {run_id for run_id in ours if await find(run_id) is None}
    if not gone and all(needed_by for _, needed_by in found):
        return []
    return await asyncio.to_thread(release, state, gone)


async def keep_deleting_orphans(find: Look) -> None:
    """Look once an hour, until cancelled."""
    while True:
        try:
            removed = await delete_orphans(find)
            if removed:
                log.info("%d snapshots of deleted runs were removed", len(removed))
        except (HoldfastError, OSError) as error:
            log.error("snapshots of deleted runs can't be removed now: %s", error)
        await asyncio.sleep(EVERY_SECONDS)
