"""What the steps of a run have kept of their workspaces is deleted with the run, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast import open_engine, start, step, workflow
from holdfast.sandbox import Workspace, WorkspaceState
from holdfast.sandbox.run_snapshots import delete_orphans
from holdfast.sandbox.snapshots import Snapshot, list_snapshots
from sandbox.support import create, require, shared_host
from waiting import LIMIT


@step
async def write_and_keep(state: WorkspaceState | None, line: str) -> WorkspaceState:
    async with await opened(state) as workspace:
        await workspace.sandbox.shell(line)
        return await workspace.keep()


@workflow
async def keep_two_states(state: WorkspaceState | None) -> WorkspaceState:
    return await write_and_keep(await write_and_keep(state, "echo one >> log"), "echo two >> log")


async def opened(state: WorkspaceState | None, **options: Any) -> Workspace:
    return await Workspace.open(
        state, backend="namespace", host=shared_host(), timeout=LIMIT, **options
    )


def kept() -> set[str]:
    return {snapshot.id for snapshot in list_snapshots(shared_host().state)}


async def a_snapshot() -> Snapshot:
    async with await create() as sandbox:
        await sandbox.write_files({"log": "zero\n"})
        return await sandbox.snapshot()


async def test_kept_workspaces_go_with_the_last_run_that_needs_them(tmp_path: Path) -> None:
    require("namespace")
    before, state = kept(), shared_host().state
    store, other = tmp_path / "runs.db", tmp_path / "other.db"
    own = await a_snapshot()  # nobody's but the caller's
    async with open_engine(store) as engine:
        first = await start(keep_two_states, None)
        done = await first.result()
        second = await start(keep_two_states, done)  # goes on from what another run has kept
        await second.result()
        assert len(kept() - before) == 5
        assert await delete_orphans(engine.store.get, state) == []
        await first.delete()
        assert await delete_orphans(engine.store.get, state) == []
        async with await opened(done) as workspace:
            assert (await workspace.sandbox.read_text("log")).split() == ["one", "two"]
    async with open_engine(other) as engine:  # whose runs these are not
        assert await delete_orphans(engine.store.get, state) == []
    env = {**os.environ, "HOLDFAST_SANDBOX_DIR": str(state), "HOLDFAST_STORE": str(store)}
    words = [sys.executable, "-m", "holdfast.cli.main", "runs", "delete", second.id]
    subprocess.run(words, env=env, check=True, capture_output=True)
    assert kept() - before == {own.id}
    own.delete()


async def test_a_look_that_was_cut_short_is_made_good_and_what_was_kept_in_no_run_stays(
    tmp_path: Path,
) -> None:
    require("namespace")
    before, state = kept(), shared_host().state
    async with await opened(None) as workspace:
        by_hand = await workspace.keep()
    async with open_engine(tmp_path / "runs.db") as engine:
        run = await start(keep_two_states, None)
        last = await run.result()
        mark = state / "snapshots" / last.snapshot / "kept_for" / run.id
        mark.unlink()  # and killed before it could remove the snapshot
        assert await delete_orphans(engine.store.get, state) == [last.snapshot]
        await run.delete()
        assert len(await delete_orphans(engine.store.get, state)) == 1
    assert kept() - before == {by_hand.snapshot}
    by_hand.delete(host=shared_host())
    assert kept() == before


async def test_deleting_a_workspace_leaves_what_it_began_from() -> None:
    require("namespace")
    own = await a_snapshot()
    async with await opened(None, source=own) as workspace:
        first = await workspace.keep()
    first.delete(host=shared_host())
    async with await create(source=own) as sandbox:
        assert await sandbox.read_text("log") == "zero\n"
    own.delete()
