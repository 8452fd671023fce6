"""The rollback drill: runs begun by the deployed code, taken on by this code, given back to it.

The deployed code is a revision of the project's git repository, unpacked into the drill's folder
and loaded by a process of its own. The two hand copies of a store on: the deployed code stops its
runs at moments spread over their course; this code takes each on for a while, and begins runs of
its own; the deployed code has to bring all of them to an end. Moments are where a step begins and
where a run only waits.

    python -m holdfast.ready.rollback_drill FOLDER EXAMPLES     the process of the deployed code
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import config, start
from holdfast.ready import project as projects
from holdfast.ready.drill import FOLDER, DrillBroken, DrillHarness, Stage, agreeable
from holdfast.ready.look import Look
from holdfast.ready.source_code import Sources
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.settings import Settings

MOST = 6
"""Moments of a workflow at which its runs change hands."""


async def rollback(look: Look, stage: Stage) -> None:
    """Old code, new code, old code again, on copies of a store."""
    settings = stage.project.settings
    if not settings.examples:
        look.skip("no workflow has an example: [project.examples.WORKFLOW] in holdfast.toml")
        return
    try:
        revision = _deployed(stage.project.root, settings.deployed)
    except GitRefused as error:
        look.skip(str(error))
        return
    folder = Path(os.environ[FOLDER]) / "rollback"
    (folder / "stores").mkdir(parents=True)
    old = _unpack(stage.project.root, revision, folder / "deployed")
    here = _Part(stage, folder / "stores")
    async with _deployed_code(old, folder / "stores", settings.examples) as ask:
        begun = await ask("begin", {})
        ended = await ask("end", await here.take(begun))
    number = 0
    for name, told in ended.items():
        number += 1
        whose = f"begun by {told['by']}, {told['moments']} moments in"
        if told["status"] != "stuck":
            continue
        what = f"a run of {told['workflow']} {whose}"
        if told["at"] == "take":
            words = f"{what}, is stuck on this code: {told['error']}"
        else:
            words = f"{what}, then on this code, is stuck when {revision[:12]} is back"
            words += f": {told['error']}"
        look.fail(words, _place(stage, told["workflow"]), evidence=f"{revision}, {name}")
        break  # the others say the same
    if number:
        look.passed(f"{number} runs given to this code and back to {revision[:12]}: none is stuck")
    else:
        look.skip(f"no workflow with an example is in {revision[:12]}, too")


def _place(stage: Stage, name: str) -> Workflow[..., Any] | None:
    return next((flow for flow in stage.project.workflows if flow.name == name), None)


# --- the deployed code ---


class GitRefused(Exception):
    """There is no code to roll back to."""


def _deployed(root: Path, named: str | None) -> str:
    """The revision that is deployed: the one named, or the last one whose code differs."""
    if named is not None:
        return _git(root, "rev-parse", "--verify", f"{named}^{{commit}}").strip()
    head = _git(root, "rev-parse", "--verify", "HEAD").strip()
    if _git(root, "status", "--porcelain", "--untracked-files=no", "--", "*.py"):
        return head
    before = _git(root, "log", "-2", "--format=%H", "--", "*.py").split()
    if len(before) < 2:
        raise GitRefused("the repository has no older code: name one in [project] deployed")
    return before[1]


def _unpack(root: Path, revision: str, target: Path) -> Path:
    prefix = _git(root, "rev-parse", "--show-prefix").strip()
    packed = subprocess.run(
        ["git", "archive", "--format=tar", f"{revision}:{prefix}"],
        cwd=_git(root, "rev-parse", "--show-toplevel").strip(),
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(target, filter="data")
    return target


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except FileNotFoundError as error:
        raise GitRefused("git is not installed: no older code to roll back to") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["git failed"])[0]
        raise GitRefused(f"no older code to roll back to: {said}")
    return done.stdout


# --- the two that hand runs on ---

_DONE = "holdfast-rollback-drill: "
"""Begins the line that tells an answer: the project may print what it likes."""


@asynccontextmanager
async def _deployed_code(
    root: Path, stores: Path, examples: Mapping[str, Any]
) -> AsyncGenerator[Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]]:
    """A process with the code in `root`, which is told what to do in words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast.ready.rollback_drill", str(stores), json.dumps(examples),
        cwd=root, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=1 << 24,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    orders, answers, errors = process.stdin, process.stdout, process.stderr
    said = asyncio.ensure_future(errors.read())

    async def ask(part: str, runs: dict[str, Any]) -> dict[str, Any]:
        orders.write(json.dumps([part, runs]).encode() + b"\n")
        while line := (await answers.readline()).decode():
            if line.startswith(_DONE):
                return json.loads(line.removeprefix(_DONE))
        words = (await said).decode("utf-8", "replace").strip()
        raise DrillBroken(f"the deployed code could not be loaded: {words[-300:]}")

    try:
        yield ask
    finally:
        orders.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
        await said


class HandedOn(DrillHarness):
    """A harness that stops at a moment, and counts them."""

    def __init__(self, stage: Stage, copy_of: Path | None, stop_at: int | None) -> None:
        super().__init__(stage, settings=config.section("runtime", Settings), copy_of=copy_of)
        self.moments, self.stop_at = 0, stop_at

    @property
    def stopped(self) -> bool:
        return self.stop_at is not None and self.moments >= self.stop_at

    def _substitute(self, step: Step[..., Any]) -> Callable[..., Any] | None:
        self.moments += 1
        return _never if self.stopped else super()._substitute(step)

    async def go_on(self, run_id: str) -> str:
        """Until the moment, the end, or until nothing more happens by itself: the run's status."""
        while True:
            await self._settle()
            run = await self.engine.store.get(run_id)
            assert run is not None
            if self.stopped or run.ended or run.status == "stuck":
                return run.status
            self.moments += 1
            before = await self.journal(run_id)
            await self.approve_all()
            await self._settle()
            if len(await self.journal(run_id)) > len(before) or self.stopped:
                continue
            moment = self.engine.next_alarm()
            if moment is None:
                return run.status  # it waits for somebody, or is left to code of another version
            self.clock.advance(moment)

    async def _settle(self) -> None:
        """Until nothing is under way; a step that was told to stop counts as nothing."""
        quiet = 0
        while quiet < 3 and not self.stopped:
            quiet = quiet + 1 if self.engine.quiet else 0
            await asyncio.sleep(0 if quiet else 0.0005)


async def _never(*_args: Any, **_kwargs: Any) -> None:
    await asyncio.get_running_loop().create_future()


class _Part:
    """What the code of this process does with the runs that are handed on."""

    def __init__(self, stage: Stage, stores: Path) -> None:
        self.stage, self.stores = stage, stores

    async def begin(self, by: str) -> dict[str, Any]:
        """Runs of this code, each stopped at a moment of its own."""
        told: dict[str, Any] = {}
        for flow, args, kwargs in self.stage.inputs():
            async with HandedOn(self.stage, None, None) as harness:
                run = await start(flow, *args, **kwargs)
                await harness.go_on(run.id)
            whole = harness.moments
            for moment in sorted({1 + (whole - 1) * n // (MOST - 1) for n in range(MOST)}):
                name = f"{flow.name} {by} {moment}.db"
                async with HandedOn(self.stage, None, moment) as harness:
                    run = await start(flow, *args, **kwargs)
                    status = await harness.go_on(run.id)
                    harness.save(self.stores / name)
                told[name] = {
                    "workflow": flow.name, "run": run.id, "by": by, "moments": moment,
                    "whole": whole, "status": status, "at": "begin", "error": "",
                }  # fmt: skip
        return told

    async def take(self, runs: dict[str, Any]) -> dict[str, Any]:
        """The runs of the deployed code go on here for a while; others are begun."""
        told: dict[str, Any] = {}
        for name, run in runs.items():
            further = max(1, (run["whole"] - run["moments"]) // 2)
            told[name] = await self._go_on(name, run, further, "take")
        return told | await self.begin("this code")

    async def end(self, runs: dict[str, Any]) -> dict[str, Any]:
        """Whatever the others left comes to its end here."""
        return {
            name: run if run["status"] == "stuck" else await self._go_on(name, run, None, "end")
            for name, run in runs.items()
        }

    async def _go_on(
        self, name: str, run: dict[str, Any], moments: int | None, at: str
    ) -> dict[str, Any]:
        file = self.stores / name
        async with HandedOn(self.stage, file, moments) as harness:
            status = await harness.go_on(run["run"])
            kept = await harness.engine.store.get(run["run"])
            file.unlink()
            harness.save(file)
        error = "" if kept is None or kept.error is None else kept.error
        return {**run, "status": status, "at": at, "error": error}


def _main(stores: str, examples: str) -> None:
    loaded = projects.load(Path.cwd())
    known = {flow.name for flow in loaded.workflows}
    given = {name: each for name, each in json.loads(examples).items() if name in known}
    loaded = replace(loaded, settings=replace(loaded.settings, examples=given))
    stage = Stage(loaded, Sources(loaded), agreeable)
    stage.set()
    part = _Part(stage, Path(stores))
    for line in sys.stdin:
        what, runs = json.loads(line)
        told = asyncio.run(part.begin("deployed code") if what == "begin" else part.end(runs))
        print(f"{_DONE}{json.dumps(told)}", flush=True)  # noqa: T201 - to whoever asked


if __name__ == "__main__":
    _main(*sys.argv[1:])
