"""The points as far as the store tells: what was recorded of the project's runs, and when.

Reads only, a bounded number of the newest runs (all of them to replay), and never waits for a
worker. Without a store, or without a run in it, nothing was exercised.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from holdfast import config
from holdfast.durations import seconds
from holdfast.errors import CodecError
from holdfast.gateway.secrets import Redactor
from holdfast.ready.look import Look
from holdfast.ready.points import Finding
from holdfast.ready.project import Project
from holdfast.ready.replay_check import check_runs
from holdfast.ready.source_code import Sources
from holdfast.records import ENDED, Run
from holdfast.records.sandboxes import PROCESS_DIED
from holdfast.runtime.app import open_engine
from holdfast.runtime.retention import BADLY, RetentionSettings
from holdfast.runtime.settings import Settings
from holdfast.sandbox.base import Isolation
from holdfast.sandbox.settings import load as sandbox_settings
from holdfast.store import opener
from holdfast.store.inspection import CallRow, JournalRow, RunQuery, SandboxRow, View

SAMPLE = 300
"""The newest runs that are looked at."""
PAYLOADS = 2000
"""Payloads that are read back."""
TIMED_OUT = "wait.timed_out"
RECEIVED = "wait.received"


@dataclass(frozen=True)
class Records:
    """What was read of the store, at one moment."""

    view: View
    runs: list[Run]
    journals: dict[str, list[JournalRow]]
    calls: list[CallRow]
    sandboxes: list[SandboxRow]
    now: float

    @property
    def live(self) -> list[Run]:
        return [run for run in self.runs if run.status not in ENDED]


Check = Callable[[Look, Records, Project], None]


def examine(project: Project, sources: Sources, points: set[str]) -> list[Finding]:
    """Every point that the store can tell of."""
    wanted = {point: check for point, check in CHECKS.items() if point in points}
    looks = {point: Look(project, point, "R") for point in wanted}
    if not opener.exists(project.store):
        looks |= {point: Look(project, point, "R") for point in {"HF25", "HF26"} & points}
        for look in looks.values():
            look.skip(f"there is no store at {project.store}")
        return [each for look in looks.values() for each in look.findings]

    def question(view: View) -> None:
        records = _read(view)
        for point, check in wanted.items():
            check(looks[point], records, project)

    async def ask() -> None:
        inspection = opener.inspection(project.store)
        try:
            await inspection.ask(question)
        finally:
            inspection.close()

    asyncio.run(ask())
    replays = {point: Look(project, point, "R") for point in ("HF25", "HF26") if point in points}
    if replays:
        asyncio.run(_replayed(replays, project))
        looks |= replays
    return [each for look in looks.values() for each in look.findings]


def _read(view: View) -> Records:
    rows = view.run_page(RunQuery(), SAMPLE).rows
    runs = [row.run for row in rows]
    calls = [call for run in runs for call in view.calls_of_run(run.id)]
    boxes = view.sandbox_list(None, 200, None).rows
    return Records(view, runs, {r.id: view.journal(r.id) for r in runs}, calls, boxes, time.time())


def _no_runs(look: Look, records: Records) -> bool:
    if not records.runs:
        look.skip("the store has no runs")
    return not records.runs


def recorded_values(look: Look, records: Records, project: Project) -> None:
    """What was stored is read with today's types, and stored again: it must be the same."""
    if _no_runs(look, records):
        return
    signatures = {step.name: step.signature for step in project.steps}
    flows = {flow.name: flow.signature for flow in project.workflows}
    number = 0
    for run in records.runs:
        for row in records.journals[run.id]:
            result = (
                signatures.get(str(row.facts.get("name"))) if row.type == "step.completed" else None
            )
            codec = None if result is None else result.result
            if row.type == "run.completed" and run.workflow in flows:
                codec = flows[run.workflow].result
            if codec is None or number >= PAYLOADS:
                continue
            payload = records.view.payload(run.id, row.seq, 0, 1 << 20)
            if payload is None or not payload.is_whole:
                continue
            number += 1
            try:
                codec.encode(codec.decode(payload.data, "$"), "$")
            except CodecError as error:
                look.fail(
                    f"{row.facts.get('name', run.workflow)}: {error.message}",
                    evidence=f"{run.id} event {row.seq}",
                )
    if not number and not look.findings:
        look.skip("no recorded results of this project's steps")
    look.passed(f"{number} recorded results read and stored again")


def payload_sizes(look: Look, records: Records, project: Project) -> None:
    if _no_runs(look, records):
        return
    limit = config.section("runtime", Settings).max_payload
    sizes = sorted(
        (r.size, run, r.seq) for run, rows in records.journals.items() for r in rows if r.size
    )
    if not sizes:
        look.skip("no payload is on record")
        return
    largest, run_id, seq = sizes[-1]
    p99 = sizes[int(len(sizes) * 0.99) - 1][0] if len(sizes) > 1 else largest
    words = f"p99 {p99:,}, largest {largest:,} of {limit:,} bytes allowed"
    if largest > limit * 0.8:
        look.fail(f"payloads come close to the limit: {words}", evidence=f"{run_id} event {seq}")
    look.passed(f"{len(sizes)} payloads: {words}")


def longest_steps(look: Look, records: Records, project: Project) -> None:
    if _no_runs(look, records):
        return
    longest: dict[str, tuple[float, str]] = {}
    for run, rows in records.journals.items():
        begun: dict[str, tuple[float, str]] = {}
        for row in rows:
            if row.type == "step.started":
                begun[row.key] = row.at, str(row.facts.get("name"))
            elif row.type in ("step.completed", "step.failed") and row.key in begun:
                at, name = begun[row.key]
                longest[name] = max(longest.get(name, (0.0, "")), (row.at - at, run))
    limits = {step.name: step.timeout for step in project.steps if step.timeout}
    for name, (took, run) in longest.items():
        limit = limits.get(name)
        if limit is not None and took > 0.8 * limit:
            look.warn(f"step {name} took {took:.0f} s of the {limit:g} it has", evidence=run)
    look.passed(f"{len(longest)} kinds of steps, none near its limit")


def expired_waits(look: Look, records: Records, project: Project) -> None:
    types = Counter(row.type for rows in records.journals.values() for row in rows)
    number, expired = types[RECEIVED] + types[TIMED_OUT], types[TIMED_OUT]
    if not number:
        look.skip("no wait is on record")
        return
    if number >= 20 and expired / number > 0.9:
        look.warn(f"{expired} of {number} waits timed out")
    look.passed(f"{expired} of {number} waits timed out")


def call_errors(look: Look, records: Records, project: Project) -> None:
    ended = [call for call in records.calls if call.finished_at is not None]
    if not ended:
        look.skip("no model call is on record")
        return
    kinds = Counter(call.error or "unknown" for call in ended if call.status == "failed")
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5)) or "none failed"
    if len(ended) >= 20 and sum(kinds.values()) / len(ended) > 0.5:
        look.warn(f"of {len(ended)} model calls: {said}")
    look.passed(f"{len(ended)} model calls: {said}")


def live_runs(look: Look, records: Records, project: Project) -> None:
    if _no_runs(look, records):
        return
    known = {flow.name for flow in project.workflows}
    for run in records.live:
        if run.workflow in known and run.deadline is None and run.parent_id is None:
            hours = (records.now - run.created_at) / 3600
            look.warn(f"a run of {run.workflow} has no deadline, {hours:.1f} h on", evidence=run.id)
    look.passed(f"{len(records.live)} live runs, each with a deadline")


def stop_reasons(look: Look, records: Records, project: Project) -> None:
    ended = [row.record for row in records.sandboxes if not row.record.live]
    if not ended:
        look.skip("no sandbox is on record")
        return
    reasons = Counter(record.stopped_because or "" for record in ended)
    timed_out = sum(count for why, count in reasons.items() if "time limit" in why)
    if len(ended) >= 10 and timed_out / len(ended) > 0.5:
        look.warn(f"{timed_out} of {len(ended)} sandboxes ended by their time limit")
    look.passed(", ".join(f"{count} {why}" for why, count in reasons.most_common(4)))


def orphans(look: Look, records: Records, project: Project) -> None:
    live = [row.record for row in records.sandboxes if row.record.live]
    ended = {run.id for run in records.runs if run.status in ENDED}
    for record in live:
        if record.run_id in ended:
            look.fail(
                f"{record.id} is on record as running, and its run has ended",
                evidence=str(record.run_id),
            )
        elif records.now - record.created_at.timestamp() > record.timeout + 3600:
            look.fail(f"{record.id} is on record as running long after its time limit")
    died = sum(row.record.stopped_because == PROCESS_DIED for row in records.sandboxes)
    if not records.sandboxes:
        look.skip("no sandbox is on record")
    look.passed(f"{len(live)} live sandboxes belong to live runs; {died} ended with their process")


def refused_attempts(look: Look, records: Records, project: Project) -> None:
    if not records.sandboxes:
        look.skip("no sandbox is on record")
        return
    refused = [(row.refused, row.record.id) for row in records.sandboxes if row.refused]
    if refused:
        number, id = max(refused)
        look.warn(
            f"{len(refused)} sandboxes tried to reach what they may not",
            evidence=f"{id}: {number} attempts",
        )
    look.passed(f"{len(records.sandboxes)} sandboxes, none of which tried to reach what it may not")


def isolation_used(look: Look, records: Records, project: Project) -> None:
    if not records.sandboxes:
        look.skip("no sandbox is on record")
        return
    wanted = sandbox_settings().min_isolation
    floor = Isolation[wanted.upper()] if wanted else Isolation.NAMESPACE
    backends = Counter(row.record.backend for row in records.sandboxes)
    for row in records.sandboxes:
        kind = Isolation.__members__.get(row.record.backend.upper())
        if kind is not None and kind < floor:
            look.fail(f"{row.record.id} was made with {row.record.backend}, less than {wanted}")
            break
    look.passed(", ".join(f"{count} by {name}" for name, count in backends.items()))


def duplicates(look: Look, records: Records, project: Project) -> None:
    if _no_runs(look, records):
        return
    alike: dict[tuple[str, bytes], list[Run]] = defaultdict(list)
    for run in records.runs:
        if run.key is None and run.parent_id is None:
            alike[run.workflow, records.view.run_input(run.id)].append(run)
    for (flow, _), runs in alike.items():
        times = sorted(run.created_at for run in runs)
        close = [b - a for a, b in pairwise(times) if b - a < 10]
        if close:
            look.warn(
                f"{flow} was started {len(close) + 1} times with one input within seconds, and "
                "without a key",
                evidence=", ".join(run.id for run in runs[:3]),
            )
    look.passed(f"{len(records.runs)} runs, no two alike within seconds without a key")


def unrecorded(look: Look, records: Records, project: Project) -> None:
    if _no_runs(look, records):
        return
    for call in records.calls:
        if call.run_id and not call.step_key:
            look.fail(f"{call.id} names its run and no step", evidence=str(call.run_id))
    empty = [run.id for run in records.runs if run.status in ENDED and not records.journals[run.id]]
    if empty:
        look.fail(f"{len(empty)} ended runs have no journal", evidence=empty[0])
    look.passed(
        f"{len(records.runs)} runs and {len(records.calls)} model calls, each with its step"
    )


def unseen_failures(look: Look, records: Records, project: Project) -> None:
    handled = {flow.name for flow in project.workflows if flow.on_failure is not None}
    failed = [run for run in records.runs if run.status in ("failed", "stuck")]
    if not failed:
        look.skip("no failed run is on record")
        return
    stuck = [run for run in failed if run.status == "stuck"]
    if stuck:
        look.warn(
            f"{len(stuck)} runs are stuck, and no handler hears of that", evidence=stuck[0].id
        )
    unseen = [run for run in failed if run.workflow not in handled and run.parent_id is None]
    if unseen:
        look.warn(f"{len(unseen)} failed runs told nobody", evidence=unseen[0].id)
    look.passed(f"{len(failed)} failed runs, each told a handler")


def stored_secrets(look: Look, records: Records, project: Project) -> None:
    """Journals are kept as they are: what looks like a key in them is a key in them."""
    if _no_runs(look, records):
        return
    redact, number = Redactor(), 0
    for run in records.runs:
        for row in records.journals[run.id]:
            if not row.size or number >= PAYLOADS:
                continue
            payload = records.view.payload(run.id, row.seq, 0, 1 << 16)
            if payload is None:
                continue
            number += 1
            text = payload.data.decode("utf-8", "replace")
            if redact(text) != text:
                look.fail(
                    f"what looks like a secret is stored in {row.type}",
                    evidence=f"{run.id} event {row.seq}",
                )
    look.passed(f"{number} payloads, none of which holds what looks like a secret")


def sums(look: Look, records: Records, project: Project) -> None:
    if not records.calls:
        look.skip("no model call is on record")
        return
    for run in records.runs:
        whole = records.view.call_totals(run.id)
        steps = records.view.call_totals_by_step(run.id).values()
        if whole.cost != sum(each.cost for each in steps) or whole.tokens != sum(
            each.tokens for each in steps
        ):
            look.fail(f"the steps of {run.id} do not sum up to the run", evidence=run.id)
        held = records.view.spent(f"run:{run.id}")
        if held.calls and (held.usd < whole.cost or held.tokens < whole.tokens):
            look.fail(
                f"{run.id} cost {whole.cost} billionths of a dollar, {whole.tokens} tokens; its "
                f"budget counted {held.usd}, {held.tokens}",
                evidence=run.id,
            )
    look.passed(f"{len(records.calls)} calls: steps, runs and budgets agree")


def kept(look: Look, records: Records, project: Project) -> None:
    """How old the oldest ended run is, and the newest backup."""
    settings = project.settings
    rules = config.section("retention", RetentionSettings)
    for run in records.runs:
        rule = rules.workflows.get(run.workflow, rules)
        failed = run.status in BADLY and rule.keep_failed is not None
        keep = rule.keep_failed if failed else rule.keep
        age = records.now - (run.finished_at or records.now)
        if keep is not None and age > keep * 1.1:
            look.warn(
                f"{run.id} ended {age / 86400:.0f} days ago, and [retention] keeps such runs for "
                f"{keep / 86400:g}: no worker deletes them",
                config.FILE,
            )
            break
    if settings.backups is not None and records.runs:
        files = (
            [f for f in Path(settings.backups).glob("*") if f.is_file()]
            if Path(settings.backups).is_dir()
            else []
        )
        if not files:
            look.warn(f"there is no backup in {settings.backups}", config.FILE)
        elif (old := records.now - max(f.stat().st_mtime for f in files)) > seconds(
            settings.backup_every
        ):
            look.fail(
                f"the newest backup in {settings.backups} is {old / 3600:.0f} h old", config.FILE
            )
    state = records.view.state(records.now)
    look.passed(f"{state.page_bytes:,} bytes, {len(records.runs)} runs looked at, backups in time")


async def _replayed(looks: dict[str, Look], project: Project) -> None:
    """The recorded runs on today's code: live ones for HF25, kept ones for HF26."""
    flows = {flow.name: flow for flow in project.workflows}
    async with open_engine(project.store, worker=False) as engine:
        report = await check_runs(engine.store, flows)
    counts = {"HF25": report.live, "HF26": report.kept}
    for point, look in looks.items():
        for each in report.problems:
            if each.live == (point == "HF25") and each.verdict != "unclaimed":
                at = (
                    None
                    if each.place is None
                    else (look.project.relative(each.place.file), each.place.line)
                )
                look.fail(
                    f"a run of {each.workflow} {each.verdict}: {each.message}",
                    at,
                    evidence=each.run_id,
                )
        number = sum(count for verdict, count in counts[point].items() if verdict != "unclaimed")
        if number:
            look.passed(f"{number} runs replayed on this code")
        elif not look.findings:
            look.skip(
                "no live run is on record" if point == "HF25" else "no ended run is on record"
            )


CHECKS: dict[str, Check] = {
    "HF02": recorded_values,
    "HF05": payload_sizes,
    "HF06": longest_steps,
    "HF07": expired_waits,
    "HF09": call_errors,
    "HF10": live_runs,
    "HF11": stop_reasons,
    "HF12": orphans,
    "HF14": refused_attempts,
    "HF16": isolation_used,
    "HF20": duplicates,
    "HF21": unrecorded,
    "HF22": unseen_failures,
    "HF23": stored_secrets,
    "HF24": sums,
    "HF28": kept,
}
