"""The workspaces that are open in this process, by run.

A run is durable and a sandbox is not: after a crash, or on another machine, a run finds no
workspace here, or one in another state than it left, and has it made anew.
"""

from __future__ import annotations

from holdfast.agents.repo.workspace import Workspace

_open: dict[str, Workspace] = {}


def find(run_id: str, tree: str) -> Workspace | None:
    """The run's workspace, if it is open and in this state."""
    found = _open.get(run_id)
    if found is None or not found.sandbox.running or found.tree != tree:
        return None
    return found


async def put(run_id: str, workspace: Workspace) -> None:
    """Let this be the run's workspace; another that it had is closed."""
    await drop(run_id)
    for each in [each for each, known in _open.items() if not known.sandbox.running]:
        del _open[each]  # their runs have ended, and their sandboxes with them
    _open[run_id] = workspace


async def drop(run_id: str) -> None:
    """Close the run's workspace: it is not wanted, or in no known state."""
    found = _open.pop(run_id, None)
    if found is not None:
        await found.sandbox.stop("no longer needed")
