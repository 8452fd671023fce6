"""Sandboxes of the test's own, on the backend that has snapshots everywhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.support import PRICE, make_gateway
from holdfast import open_engine, start
from holdfast.agents.repo import Repair, repair_repo
from holdfast.gateway import Gateway, Say, ScriptedModel, use_gateway
from holdfast.sandbox import default_host
from holdfast.sandbox.snapshots import list_snapshots


@pytest.fixture(scope="package", autouse=True)
def sandbox_state() -> Iterator[str]:
    """A state folder of this test process's own, under a short path; other folders' tests have theirs."""
    folder = tempfile.mkdtemp(prefix="hf-")
    os.chmod(folder, 0o700)
    before = {
        name: os.environ.get(name) for name in ("HOLDFAST_SANDBOX_DIR", "HOLDFAST_REPO_BACKEND")
    }
    os.environ.update(HOLDFAST_SANDBOX_DIR=folder, HOLDFAST_REPO_BACKEND="namespace")
    default_host().close()
    yield folder
    default_host().close()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nothing_left(sandbox_state: str) -> Iterator[None]:
    """After the test no sandbox runs and no snapshot is kept."""
    yield
    assert not default_host().sandboxes
    assert not list_snapshots(default_host().state)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """Where every model call of the test goes, with its ledger in memory."""
    made = make_gateway(prices={"scripted/*": PRICE})
    use_gateway(made)
    try:
        yield made
    finally:
        use_gateway(None)
        await made.close()


Repairing = Callable[..., Any]


@pytest.fixture
async def repair(tmp_path: Path, gateway: Gateway, nothing_left: None) -> AsyncIterator[Repairing]:
    """Runs the agent on a repo with a model that plays a script of tool calls."""

    async def run(
        repo: Path | str, script: Any, task: str = "Make the tests pass", **more: Any
    ) -> Repair:
        said = script if callable(script) else [as_say(turn) for turn in script]
        with ScriptedModel("coder", said):
            handle = await start(repair_repo, str(repo), task, model="scripted/coder", **more)
            run.handle = handle  # type: ignore[attr-defined]
            return await handle.result()

    async with open_engine(tmp_path / "runs.db"):
        yield run


def as_say(turn: Any) -> Any:
    """One turn of a script: a tool call `(name, arguments)`, several of them, or an answer."""
    if isinstance(turn, tuple):
        return Say(tools=[turn])
    return Say(tools=turn) if isinstance(turn, list) else turn


def edit(change: tuple[str, str, str]) -> tuple[str, dict[str, str]]:
    path, old, new = change
    return ("edit_file", {"path": path, "old": old, "new": new})


def finish(summary: str = "Done.") -> tuple[str, dict[str, str]]:
    return ("finish", {"summary": summary})
