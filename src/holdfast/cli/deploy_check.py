"""`holdfast runs check`: replay every recorded run on the code that is about to be deployed.

Says which live runs would go on and which would be stuck, and prints, as a diff, the `patched`
guards that were tried and make them fit. `holdfast worker --check` demands it of itself.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common, add_modules, parse_duration
from holdfast.cli.store import visit
from holdfast.cli.workflow_files import load, load_agents
from holdfast.errors import Refused, UsageError
from holdfast.ready.replay_check import CheckReport, Finding, check_runs
from holdfast.ready.replay_guards import Guard, propose_guards
from holdfast.runtime.definitions import registered
from holdfast.runtime.engine import Engine

SHOWN = 20
"""Runs that do not fit and are listed; all are in the JSON."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_modules(parser)
    parser.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
    parser.add_argument(
        "--since",
        default="30d",
        metavar="DURATION|DATE",
        help="of the runs that have ended, only those started since then (30d)",
    )
    parser.add_argument("--live", action="store_true", help="only the runs that have not ended")
    parser.add_argument(
        "--base",
        metavar="REF",
        help="the git commit that is deployed: a guard is put around what has changed since",
    )
    parser.add_argument(
        "--ignore-unclaimed",
        action="store_true",
        help="let live runs pass whose workflow no loaded module defines",
    )
    add_common(parser, _check)


def _check(options: argparse.Namespace) -> int:
    load_agents()
    for named in options.modules:
        load(named)
    return asyncio.run(_check_all(options))


async def _check_all(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        report = await check_runs(
            engine.store,
            registered(),
            since=_moment(options.since, engine.clock.now()),
            kept=not options.live,
            only=options.workflow,
        )
        guards = await propose_guards(
            engine.store, registered(), report, lambda file: _source_at(file, options.base)
        )
    breaking = report.breaking(unclaimed=not options.ignore_unclaimed)
    if options.json:
        shown = {**report.as_json(), "break": len(breaking)}
        output.show_json({**shown, "guards": [guard.as_json() for guard in guards]})
    else:
        _show(report, breaking, guards, options)
    return 1 if breaking else 0


def _moment(text: str, now: float) -> float:
    try:
        return now - parse_duration(text)
    except UsageError:
        pass
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text!r} is neither a duration nor a date", hint="30d, or 2026-11-01"
        ) from error
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


# --- guards ---


def _source_at(file: Path, base: str | None) -> str | None:
    """A file as it was in a commit; without one, as it was last committed."""
    command = ["git", "-C", str(file.parent), "show", f"{base or 'HEAD'}:./{file.name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        done = None
    if done is not None and done.returncode == 0:
        return done.stdout
    if base is not None:
        why = "there is no git here" if done is None else done.stderr.strip()
        raise UsageError(f"{file.name} can't be had from {base}: {why}")
    return None


# --- showing ---


def _show(
    report: CheckReport,
    breaking: list[Finding],
    guards: list[Guard],
    options: argparse.Namespace,
) -> None:
    live, kept = sum(report.live.values()), sum(report.kept.values())
    print(f"{report.runs:,} runs, {len(breaking):,} break")
    print(f"  live  {live:>8,}  {_counts(report.live)}")
    if not options.live:
        print(f"  kept  {kept:>8,}  {_counts(report.kept)}")
    if report.problems:
        print()
        headings = ("RUN", "WORKFLOW", "STATUS", "VERDICT", "WHERE")
        output.table(headings, [_row(each) for each in report.problems[:SHOWN]], states="")
    for message, count in _reasons(report.problems):
        print(f"\n{count:,} {'run' if count == 1 else 'runs'}: {output.short(message, 400)}")
    if len(report.problems) > SHOWN:
        output.note(f"and {len(report.problems) - SHOWN:,} more: --json has them all")
    for each in report.failing[:SHOWN]:
        output.note(f"{each.run_id} fits, and {output.short(each.next, 200)}")
    for guard in guards:
        runs = f"{len(guard.runs):,} {'run' if len(guard.runs) == 1 else 'runs'}"
        print(f"\nwith this guard {runs} would go on (tried):\n")
        print("\n".join(output.plain(line) for line in guard.diff.splitlines()))
    if any(each.verdict == "stuck" for each in report.problems):
        output.note(
            "\nno guard was found for the stuck runs: finish them with the old code first"
            + ("" if options.base else "; --base REF, the commit that is deployed, may help")
        )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))


def _row(each: Finding) -> tuple[str, ...]:
    where = "" if each.place is None else f"{Path(each.place.file).name}:{each.place.line}"
    return each.run_id, each.workflow, each.status, each.verdict, where or each.key


def _reasons(problems: list[Finding]) -> list[tuple[str, int]]:
    """The first message of each place at which runs part from the code, and how many do."""
    counted: dict[tuple[str, str], list[str]] = {}
    for each in problems:
        counted.setdefault((each.workflow, str(each.place or each.key)), []).append(each.message)
    found = [(messages[0], len(messages)) for messages in counted.values()]
    return sorted(found, key=lambda reason: -reason[1])[:SHOWN]


# --- for a worker ---


async def demand(engine: Engine) -> None:
    """Refuse to work on a store with live runs that would be stuck on this worker's code."""
    report = await check_runs(engine.store, registered(), kept=False)
    breaking = report.breaking(unclaimed=False)  # others may know their workflows
    if breaking:
        first = breaking[0]
        raise Refused(
            f"{len(breaking):,} of {report.runs:,} live runs would be stuck on this code: "
            f"{first.run_id} ({first.workflow}): {first.message}",
            hint="holdfast runs check shows them all, and the guards that would help",
        )
