"""A workspace that lasts across the steps of a run, though the sandboxes it is in do not.

    @step
    async def work(state: WorkspaceState | None, line: str) -> WorkspaceState:
        async with await Workspace.open(state, source="./project") as workspace:
            await workspace.sandbox.shell(line)
            return await workspace.keep()

What `keep` gives is small and goes into the journal as a step's result; the files are a snapshot
beside it, on this machine. Whoever opens that state gets a new sandbox with just these files: the
next step, or the next attempt of one that failed half-way, in this process or in another that the
run goes on in. Processes do not last from one to the next.

What a step keeps is deleted with its run, unless another run has opened it, or by `delete`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.errors import NotFound, Refused
from holdfast.sandbox import run_snapshots
from holdfast.sandbox.host import Host, default_host
from holdfast.sandbox.sandbox import Sandbox
from holdfast.sandbox.snapshots import Snapshot, get_snapshot
from holdfast.sandbox.templates import Template


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The files of a workspace at one moment. It can be stored, and opened again."""

    snapshot: str
    """The snapshot's id."""

    def delete(self, *, host: Host | None = None) -> None:
        """Remove its files, and the earlier states it was built on that nothing else needs."""
        state = (host or default_host()).state
        try:
            latest = get_snapshot(state, self.snapshot)
            latest.delete()
            for each in (get_snapshot(state, id) for id in latest.parents):
                if not each.marks.is_dir():
                    return  # what the workspace began from: a template, a snapshot of somebody's
                each.delete()
        except (NotFound, Refused):
            return  # deleted already; or another state is built on it


class Workspace:
    """The files of a run, in a sandbox of this step's own. `keep` them for the next step."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    async def open(
        cls,
        state: WorkspaceState | None = None,
        *,
        source: str | Path | Snapshot | Template | None = None,
        **options: Any,
    ) -> Workspace:
        """The files of this state, or of `source` where there is none yet.

        `options` are those of `Sandbox.create`.
        """
        if state is None:
            return cls(await Sandbox.create(source=source, **options))
        host: Host = options.get("host") or default_host()
        run_snapshots.adopt(get_snapshot(host.state, state.snapshot))
        return cls(await Sandbox.create(source=state.snapshot, **options))

    async def keep(self) -> WorkspaceState:
        """Keep the files as they are now; what is done after is not kept."""
        return WorkspaceState((await self.sandbox.snapshot_for(run_snapshots.current_run())).id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.sandbox.stop("its workspace was closed")
