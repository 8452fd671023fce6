"""`holdfast repo`: a coding agent on a git repo, in a sandbox; and what becomes of its patch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.options import add_common, add_engine
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.agents.repo.records import Repair
    from holdfast.records import Run
    from holdfast.runtime.engine import Engine


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "source", metavar="REPO", help="a folder, or a git address (#BRANCH may follow)"
    )
    parser.add_argument("task", metavar="TASK", help="what should be done, in plain English")
    parser.add_argument("--model", metavar="PROVIDER/MODEL", help="the agent's model")
    parser.add_argument(
        "--agent",
        metavar="COMMAND",
        help="a command-line coding agent to run in the sandbox instead; {task} is the task",
    )
    parser.add_argument("--test-command", metavar="LINE", help="how the tests run (found out)")
    parser.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="run this once in the sandbox first, with the package registries in reach; "
        "may be repeated",
    )
    parser.add_argument("--attempts", type=int, metavar="N", help="at most so many rounds (3)")
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="try so many at once, keep the best"
    )
    parser.add_argument("--budget", metavar="USD", help="the most that all tries may spend")
    parser.add_argument("--max-time", metavar="DURATION", help="the most they may take (1h)")
    parser.add_argument("--committed", action="store_true", help="leave out what is not committed")
    parser.add_argument(
        "--keep-tests", action="store_true", help="accept no change of existing tests"
    )
    result = parser.add_argument_group("the patch")
    result.add_argument("--out", metavar="FILE", help="where to write it (RUN.patch)")
    result.add_argument("--apply", action="store_true", help="apply it to the folder's files")
    result.add_argument(
        "--branch", metavar="NAME", help="commit it on a new branch; nothing is checked out"
    )
    parser.add_argument("--key", help="start at most one run with this key; return it if it exists")
    parser.add_argument(
        "--detach", action="store_true", help="print the run's id and leave it to a worker"
    )
    add_engine(parser)
    add_common(parser, _repo)


def _repo(options: argparse.Namespace) -> int:
    from holdfast.agents.repo import repair_repo
    from holdfast.agents.repo.checkout import find_source
    from holdfast.cli.run import amount, start
    from holdfast.durations import seconds
    from holdfast.runtime.client import start as start_run

    source = find_source(options.source)
    if not options.task.strip():
        raise UsageError("the task is empty", hint="say what should be done")
    if source.folder is None and (options.apply or options.branch):
        raise UsageError(
            "--apply and --branch need a folder of this machine",
            hint="clone it first, or take the patch",
        )
    if options.detach and (options.apply or options.branch or options.out):
        raise UsageError("--detach leaves the patch in the run: --apply and the like can't be had")
    budget = amount(options.budget)
    limit = None if options.max_time is None else seconds(options.max_time)

    async def create() -> str:
        run = await start_run(
            repair_repo.options(key=options.key),
            source.place,
            options.task,
            model=options.model,
            test_command=options.test_command,
            setup=tuple(options.setup),
            agent=options.agent,
            parallel=options.parallel,
            attempts=options.attempts,
            max_time=limit,
            budget=budget,
            committed=options.committed,
            keep_tests=options.keep_tests,
        )
        return run.id

    async def follow_repo(engine: Engine, run_id: str) -> int:
        return await _follow(options, source.folder, engine, run_id)

    return start(options, create, follow_repo, "holdfast worker")


async def _follow(
    options: argparse.Namespace, folder: Path | None, engine: Engine, run_id: str
) -> int:
    from holdfast.cli.progress import REPO, Progress, Watcher, follow, tell_sandboxes
    from holdfast.cli.run import tell_start
    from holdfast.cli.run_text import ending, run_json, show_hint

    tell_start(options, run_id)
    watcher = Watcher() if options.json else Progress(sys.stderr, engine, run_id, REPO)
    run, journal = await follow(engine, run_id, watcher)
    repair = await _repair(run)
    if repair is None:
        if options.json:
            output.show_json(run_json(run, journal))
        else:
            output.note(ending(run))
            show_hint(run, journal)
        return 1
    made = await _use(options, folder, run, repair)
    if options.json:
        output.show_json({**run_json(run, journal), **made})
    else:
        output.note(f"  by {options.agent or repair.model}")
        await tell_sandboxes(run_id)
        for line in _closing(repair, made):
            print(line)
    return 0 if repair.passed else 1


async def _repair(run: Run) -> Repair | None:
    from holdfast.runtime.client import get_run

    return await (await get_run(run.id)).result() if run.status == "completed" else None


async def _use(
    options: argparse.Namespace, folder: Path | None, run: Run, repair: Repair
) -> dict[str, str]:
    """Write the patch, and put it where it was asked for; only one that passed is applied."""
    from holdfast.agents.repo import patches

    made: dict[str, str] = {}
    if repair.patch.text and (options.out or not options.json):
        made["file"] = _write(options.out, run.id, repair.patch.raw)
    if folder is None or not repair.passed:
        return made
    if options.branch:
        if repair.base.commit is None:
            raise UsageError("there is no commit for a branch to start from")
        message = f"{options.task.strip().splitlines()[0][:72]}\n\n{repair.summary}\n"
        made["commit"] = await patches.commit(
            folder, options.branch, repair.patch, message, repair.base.commit
        )
        made["branch"] = options.branch
    if options.apply:
        await patches.apply(folder, repair.patch)
        made["applied"] = str(folder)
    return made


def _write(named: str | None, run_id: str, patch: bytes) -> str:
    path = Path(named or f"{run_id}.patch")
    try:
        path.write_bytes(patch)
    except OSError as error:
        raise UsageError(
            f"the patch can't be written: {error}",
            hint=f"it is in the run: holdfast runs show {run_id} --json",
        ) from error
    return str(path)


def _closing(repair: Repair, made: Mapping[str, str]) -> list[str]:
    """What came of it, for people."""
    from holdfast.agents.repo.patches import sensitive

    verdict, spent = repair.verdict, repair.spent
    size = f"{len(verdict.files)} file{'s' * (len(verdict.files) != 1)}, {verdict.lines} lines"
    cost = "$?" if spent.usd is None else f"${spent.usd:.3f}"
    rounds = next(each.rounds for each in repair.tries if each.number == repair.chosen)
    kept = f"try {repair.chosen} of {len(repair.tries)}, " if len(repair.tries) > 1 else ""
    words = [
        f"{'passed' if repair.passed else 'not passed'}: {verdict.summary}",
        f"{kept}round {rounds}",
        size if verdict.files else "",
        output.duration(repair.seconds),
        f"{spent.tokens / 1000:.1f}k tokens",
        cost,
    ]
    lines = [" · ".join(word for word in words if word)]
    lines += [f"  {line}" for line in repair.summary.strip().splitlines()[-12:]]
    for test in verdict.changed_tests:
        if test.how != "added":
            lines.append(f"  ! {test.path}: {test.how}")
    if verdict.original is not None:
        lines.append(f"  ! with the tests as they were before: {verdict.original.summary}")
    twice = sensitive(repair.patch)
    if twice:
        lines.append(f"  ! look twice at what acts by being there: {', '.join(twice)}")
    lines += [f"  note: {note}" for note in repair.base.notes]
    names = {"file": "patch", "commit": "commit", "branch": "branch", "applied": "applied to"}
    lines += [f"  {names[key]} {value}" for key, value in made.items()]
    return [output.plain(line) for line in lines]
