"""The snapshots of a run: none outlives it, also where a process died between two steps."""

from __future__ import annotations

from holdfast.errors import NotFound
from holdfast.sandbox import default_host
from holdfast.sandbox.snapshots import get_snapshot, list_snapshots
from holdfast.session import current_store
from holdfast.store import opener
from holdfast.store.sandboxes import SandboxFilter

_MOST = 1000


async def delete(snapshot: str) -> None:
    """Delete a snapshot; one that is gone is fine."""
    try:
        get_snapshot(default_host().state, snapshot).delete()
    except NotFound:
        pass


async def delete_strays(run_id: str) -> None:
    """Delete what sandboxes of this run have kept: nobody was told of it before they died."""
    records = opener.sandbox_records(current_store())
    try:
        page = await records.list(SandboxFilter(run_id=run_id), limit=_MOST)
    finally:
        await records.close()
    made = {sandbox.id for sandbox in page.sandboxes}
    for snapshot in list_snapshots(default_host().state):
        if snapshot.sandbox_id in made:
            snapshot.delete()
