"""Which layers cost what, and what they are worth: one task in four compositions.

    python bench/compositions/compositions.py [--turns 5]

Prints, for each composition: processor and real time of a step; the share of runs that survive a
kill -9 (the process is killed at every moment of a run in turn and started again once: it survives
if the ticket is answered and paid back exactly once); what was done again, in all these trials
together; and lines of user code. Each trial is a fork of this process, on files of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from support_ticket import TICKET, World, done, scripted  # noqa: E402

from holdfast import decide, list_approvals, start  # noqa: E402
from holdfast.gateway import ScriptedModel  # noqa: E402
from holdfast.runtime.app import open_engine  # noqa: E402

COMPOSITIONS = {
    "monolith": "hand-made loop, state in a file",
    "loop_only": "loop",
    "loop_runtime": "loop + runtime",
    "all_three": "loop + runtime + sandbox",
}
DURABLE = ("loop_runtime", "all_three")
WORK = ("model", "look up", "refund", "check")
AGAIN = 20
"""Tickets in a row when the time is taken."""


async def one(name: str, number: int = 0) -> str:
    """The ticket's answer, by one composition; what was begun before a kill goes on."""
    module = importlib.import_module(name)
    ScriptedModel("desk", scripted).register()
    if name not in DURABLE:
        return await module.answer(TICKET)
    run = await start(module.answer.options(key=f"ticket-{number}"), TICKET)
    result = asyncio.ensure_future(run.result())
    while not result.done():
        for asked in await list_approvals():
            if asked.status == "pending":
                await decide(asked.id, True, by="a person")
        await asyncio.wait([result], timeout=0.002)
    return await result


async def trial(name: str) -> str:
    if name not in DURABLE:
        return await one(name)
    async with open_engine(World.folder / "runs.db"):
        return await one(name)


async def timed(name: str) -> dict[str, float]:
    """Seconds of a step, over many tickets in one process."""

    async def all_of_them() -> dict[str, float]:
        await one(name, -1)
        (World.folder / "state.json").unlink(missing_ok=True)
        began, cpu, before = time.monotonic(), time.process_time(), World.moments
        for number in range(AGAIN):
            await one(name, number)
            (World.folder / "state.json").unlink(missing_ok=True)
        steps = (World.moments - before) / 2
        return {
            "cpu": (time.process_time() - cpu) / steps,
            "wall": (time.monotonic() - began) / steps,
        }

    if name not in DURABLE:
        return await all_of_them()
    async with open_engine(World.folder / "runs.db"):
        return await all_of_them()


def forked(what: Any, name: str, folder: Path, die_at: int = 0) -> Any:
    """Carried out in a process of its own: what it says, or None if it was killed."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            World.folder, World.die_at, World.moments = folder, die_at, 0
            os.environ["HOLDFAST_STORE"] = str(folder / "runs.db")
            logging.disable(logging.CRITICAL)
            answer.write_text(json.dumps([asyncio.run(what(name)), World.moments]))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return json.loads(answer.read_text()) if answer.exists() else None


def killed_everywhere(name: str, root: Path) -> dict[str, Any]:
    """Kill a run at each of its moments, start it again once, and count."""
    calm = root / f"{name}-calm"
    calm.mkdir()
    _, moments = forked(trial, name, calm)
    World.folder = calm
    usual = {what: done(what) for what in WORK}
    survived, again = 0, 0
    for moment in range(1, moments + 1):
        folder = root / f"{name}-{moment}"
        folder.mkdir()
        assert forked(trial, name, folder, moment) is None, "it was to be killed"
        answer = forked(trial, name, folder)
        World.folder = folder
        again += sum(max(0, done(what) - usual[what]) for what in WORK)
        survived += answer is not None and bool(answer[0]) and done("refund") == 1
    return {"moments": moments, "survived": survived, "again": again, "steps": sum(usual.values())}


def lines_of(name: str) -> int:
    text = (HERE / f"{name}.py").read_text()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith(("#", '"""'))
        for line in text.splitlines()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in COMPOSITIONS:
        importlib.import_module(name)  # before any fork: what is measured is the work
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        found: dict[str, dict[str, Any]] = {}
        for name in COMPOSITIONS:
            found[name] = killed_everywhere(name, root)
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
        times: dict[str, list[dict[str, float]]] = {name: [] for name in COMPOSITIONS}
        for turn in range(options.turns):
            for name in COMPOSITIONS:
                place = root / f"{name}-timed-{turn}"
                place.mkdir()
                times[name].append(forked(timed, name, place)[0])
                print(f"{name}: {times[name][-1]}", file=sys.stderr, flush=True)
    for name, each in found.items():
        for kind in ("cpu", "wall"):
            each[kind] = statistics.median(time[kind] for time in times[name]) * 1000
        each["lines"] = lines_of(name)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("| composition | a step, ms of CPU | ms | survive a kill -9 | done again | lines |")
    print("|---|---|---|---|---|---|")
    for name, each in found.items():
        print(
            f"| {COMPOSITIONS[name]} | {each['cpu']:.2f} | {each['wall']:.2f} "
            f"| {each['survived']} of {each['moments']} | {each['again']} | {each['lines']} |"
        )


if __name__ == "__main__":
    main()
