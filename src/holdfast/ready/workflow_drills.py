"""Drills of workflows: crashes, expiring waits, models that misbehave, races, failures.

Each starts the project's workflows with their examples on the stage of `drill.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from holdfast import start
from holdfast.errors import ApprovalRefused, HoldfastError
from holdfast.gateway import Gateway, GatewayConfig, generate_text
from holdfast.gateway.config import Retries, Timeouts
from holdfast.gateway.messages import Request
from holdfast.gateway.providers import KNOWN, Candidate, Routes
from holdfast.gateway.scripted import Answer, Fail, Say, ScriptedModel
from holdfast.loop import approvals
from holdfast.ready.drill import (
    FOLDER,
    Drill,
    DrillBroken,
    DrillHarness,
    Stage,
    commands_of,
    drilled,
    ended,
    insatiable,
)
from holdfast.ready.example_values import NoExample, examples, from_schema
from holdfast.ready.look import Look
from holdfast.ready.rollback_drill import rollback
from holdfast.records import RUN_ENDS, Event
from holdfast.runtime.app import open_engine
from holdfast.runtime.client import list_runs
from holdfast.runtime.codec import codec_for
from holdfast.runtime.definitions import Step, Workflow, step, workflow
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.session import current_step
from holdfast.store import opener
from holdfast.store.base import RunFilter


def round_trips(look: Look, stage: Stage) -> None:
    number = 0
    for each in [*stage.project.workflows, *stage.project.steps]:
        signature = each.signature
        codecs = {"result": signature.result}
        codecs |= {name: codec_for(hint) for name, hint in signature.hints.items()}
        for name, codec in codecs.items():
            try:
                values = examples(codec.hint)
            except NoExample:
                continue
            for value in values:
                try:
                    codec.encode(value, f"$.{name}")
                    number += 1
                except HoldfastError as error:
                    look.fail(f"{each.name}: {error.message}", each, evidence=f"{value!r}")
                    break
    look.seen(number, "made-up values came back as they were")


async def replay_always(look: Look, stage: Stage) -> None:
    number = 0
    for flow, args, kwargs in stage.inputs():
        number += 1
        async with drilled(stage, flow, args, kwargs, replay_always=True) as (_, run):
            how = await ended(run)
            if how.startswith(("RunStuck", "NonDeterminismError")):
                look.fail(f"{flow.name} does not replay: {how}", flow)
        commands = _two_seeds(stage, flow)
        if len(set(commands)) > 1:
            look.fail(
                f"{flow.name} does other things under another hash seed",
                flow,
                evidence="\n".join(f"seed {n + 1}: {each}" for n, each in enumerate(commands)),
            )
    _examples(look, number, "workflows replayed after every event, under two hash seeds")


def _two_seeds(stage: Stage, flow: Workflow[..., Any]) -> list[str]:
    """The commands of a run, as processes with different hash seeds make them."""
    order = json.dumps({"root": str(stage.project.root), "workflow": flow.name})
    found: list[str] = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.ready.drill", order],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=stage.project.root, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise DrillBroken(f"a process with hash seed {seed} failed: {done.stderr[-300:]}")
        found.append(done.stdout.splitlines()[-1])
    return found


async def waits_expire(look: Look, stage: Stage) -> None:
    number = 0
    for flow, args, kwargs in stage.inputs():
        async with drilled(stage, flow, args, kwargs) as (harness, run):
            how = await ended(run)
            expired = [e for e in await harness.journal(run.id) if e.type == "wait.timed_out"]
            number += len(expired)
            if expired and how != "completed":
                look.fail(f"{flow.name} fails when its wait expires: {how}", flow, evidence=run.id)
    look.seen(number, "waits that were let expire, and the run ended well")


async def never_stops(look: Look, stage: Stage) -> None:
    before, stage.script = stage.script, insatiable
    number = 0
    try:
        for flow, args, kwargs in stage.inputs():
            if not stage.project.agents:
                break
            async with drilled(stage, flow, args, kwargs) as (harness, run):
                journal = await harness.journal(run.id)
                for _ in range(2000):
                    await harness.skip("1h")
                    await harness.approve_all()
                    journal = await harness.journal(run.id)
                    if journal[-1].type in RUN_ENDS or len(journal) > 5000:
                        break
                asked = sum(e.type == "step.started" and "model" in e.meta for e in journal)
                number += 1
                if journal[-1].type not in RUN_ENDS:
                    look.fail(
                        f"{flow.name} goes on for ever with a model that never stops",
                        flow,
                        evidence=f"{run.id}: {len(journal)} events, {asked} model calls",
                    )
    finally:
        stage.script = before
    look.seen(number, "workflows ended though their model never did")


async def bad_providers(look: Look, stage: Stage) -> None:
    """Hang, 429, 529 and a cut stream, through the real call loop, with a fallback that answers."""
    if not stage.project.agents:
        look.not_applicable("no model is called")
        return
    own = GatewayConfig.load({})
    ways: tuple[Fail, ...] = (Fail("hang"), Fail(429), Fail(529), Fail("cut"))
    scripted = KNOWN["scripted"]
    candidates = Routes.candidates
    Routes.candidates = lambda _self, _name: [
        Candidate(scripted, "sick"),
        Candidate(scripted, "well"),
    ]  # type: ignore[method-assign]
    quick = Timeouts(connect=0.2, first_token=0.2, idle=0.2, total=5.0, budget=1.0)
    retries = Retries(attempts=own.retries.attempts, base=0.01, cap=0.05)
    try:
        for way in ways:
            gateway = Gateway(
                replace(own, timeouts=quick, retries=retries, budgets=()),
                ledger=opener.ledger(os.environ["HOLDFAST_STORE"]),
                environ={},
            )
            with (
                ScriptedModel("sick", lambda _request, way=way: way),
                ScriptedModel("well", ["fine"]),
            ):
                try:
                    reply = await generate_text("any/model", prompt="hello", gateway=gateway)
                    if reply.text != "fine":
                        look.fail(f"after {way.how} the answer was {reply.text!r}")
                except HoldfastError as error:
                    look.fail(f"a provider that fails by {way.how} ends the call: {error.message}")
                finally:
                    await gateway.close()
    finally:
        Routes.candidates = candidates  # type: ignore[method-assign]
    look.passed("hang, 429, 529 and a cut reply: the fallback answered each time")


async def twice_is_once(look: Look, stage: Stage) -> None:
    """Crash after each effect and before its record; every effect must keep its one key."""
    number = 0
    for flow, args, kwargs in stage.inputs():
        stage.effects.clear()
        async with drilled(stage, flow, args, kwargs) as (harness, run):
            seen = 0
            for _ in range(400):
                await harness.until_blocked()
                await harness.approve_all()
                if len(stage.effects) > seen:
                    seen = len(stage.effects)
                    await harness.crash()
                    continue
                if (await harness.journal(run.id))[-1].type in RUN_ENDS:
                    break
                await harness.skip("1h")
            started = sum(e.type == "step.started" for e in await harness.journal(run.id))
        keys = {key for _, key in stage.effects}
        number += len(keys)
        careful = {t.name for t in stage.project.tools if not t.idempotent}
        for name in careful:
            times = [key for each, key in stage.effects if each == name]
            if len(times) != len(set(times)):
                look.fail(
                    f"tool {name} was done {len(times)} times for {len(set(times))} calls", flow
                )
        if len(keys) > started:
            look.fail(f"{flow.name}: {len(keys)} keys for {started} steps", flow, evidence=run.id)
    _examples(look, number, "effects kept their key through a crash after each")


async def changed_after_approval(look: Look, stage: Stage) -> None:
    """Agree to a call, change its arguments, and expect it to be refused."""
    tools = [tool for tool in stage.project.tools if tool.needs_approval is not False]
    if not tools:
        look.not_applicable("no tool asks for an approval")
        return

    for tool in tools:
        plain = from_schema(tool.arguments.schema)

        @step(retries=0, timeout="10s")
        async def act(id: str, name: str, arguments: dict[str, Any]) -> str:
            try:
                await approvals.use(id, name, name, arguments)
            except ApprovalRefused:
                return "refused"
            return "done"

        @workflow(name=f"doctor approval {tool.name}")
        async def ask(name: str, arguments: dict[str, Any]) -> list[str]:
            decision = await approvals.approval(name, tool=name, arguments=arguments, timeout="1h")
            changed = {**arguments, "changed": True}
            return [
                await act(decision.approval_id, name, changed),
                await act(decision.approval_id, name, arguments),
            ]

        act.function.__module__ = "holdfast.drill"  # ours: not stood in for
        async with DrillHarness(stage) as harness:
            run = await start(ask, tool.name, plain)
            await harness.until_blocked()
            await harness.approve_all()
            changed, same = await run.result()
        if changed != "refused" or same != "done":
            look.fail(
                f"tool {tool.name}: changed arguments were {changed}, the same were {same}", tool
            )
    look.seen(len(tools), "tools refused arguments that were changed after the decision")


async def racing_starts(look: Look, stage: Stage) -> None:
    """Fifty starts with one key at once, on a store on disk: one run."""
    number = 0
    for flow, args, kwargs in stage.inputs():
        path = Path(os.environ[FOLDER]) / "race.db"
        async with open_engine(path, worker=False):
            keyed = flow.options(key="doctor")
            runs = await asyncio.gather(*(start(keyed, *args, **kwargs) for _ in range(50)))
            there = await list_runs(workflow=flow.name)
        ids = {run.id for run in runs}
        number += 1
        if len(ids) != 1 or len(there.runs) != 1:
            look.fail(f"50 starts of {flow.name} with one key made {len(ids)} runs", flow)
        path.unlink()
    _examples(look, number, "workflows started 50 times at once with one key: one run each")


async def on_record(look: Look, stage: Stage) -> None:
    """Every step that began has ended on record, and every model call names its run and step."""
    number = 0
    for flow, args, kwargs in stage.inputs():
        async with drilled(stage, flow, args, kwargs) as (harness, run):
            await harness.until_blocked()
            await harness.approve_all()
            await ended(run)
            journal = await harness.journal(run.id)
        begun = {e.key for e in journal if e.type == "step.started"}
        over = {
            e.key for e in journal if e.type in ("step.completed", "step.failed", "step.cancelled")
        }
        number += len(begun)
        if begun - over:
            look.fail(f"{flow.name}: steps without an end on record: {sorted(begun - over)}", flow)
        ledger = opener.ledger(os.environ["HOLDFAST_STORE"])
        try:
            calls = await ledger.calls(run_id=run.id)
        finally:
            ledger.close()
        for call in calls:
            if not call.start.step_key:
                look.fail(f"{flow.name}: {call.start.id} names no step", flow)
    if stage.reached:
        look.fail(f"something was reached past the gateway: {', '.join(stage.reached)}")
    _examples(look, number, "steps and model calls of drills, each on record with its run")


async def failures_told(look: Look, stage: Stage) -> None:
    """Let the first step of each workflow fail for good, and expect its handler to run."""
    number = 0
    for flow, args, kwargs in stage.inputs():
        handler = flow.on_failure
        if handler is None:
            continue

        class Failing(DrillHarness):
            failing = flow.name

            def _substitute(self, step: Step[..., Any]) -> Callable[..., Any] | None:
                async def fail(*_args: Any, **_kwargs: Any) -> None:
                    raise HoldfastError("a failure made by the drill")

                ours = step.function.__module__.startswith("holdfast.")
                running = current_step()
                of_flow = running is None or running.workflow == self.failing
                return fail if of_flow and not ours else self.stage.stand_in(step)

        async with Failing(stage) as harness:
            run = await start(flow, *args, **kwargs)
            for _ in range(200):
                await harness.skip("1h")
                await harness.approve_all()
                if (await harness.journal(run.id))[-1].type in RUN_ENDS:
                    break
            last = (await harness.journal(run.id))[-1]
            if last.type != "run.failed":
                continue  # it knows what to do about failing steps
            await harness.skip("1h")
            told = await _runs_of(harness, handler.name)
            number += 1
            if not told:
                look.fail(f"{flow.name} failed, and {handler.name} was not started", flow)
    _examples(
        look, number, "workflows made to fail, each told its handler", else_="none that fails"
    )


async def _runs_of(harness: DrillHarness, workflow: str) -> list[Any]:
    return (await harness.engine.store.list_runs(RunFilter(workflow=workflow), 10, None)).runs


async def redaction(look: Look, stage: Stage) -> None:
    """A secret in a prompt, a reply and a provider's error; none may be in the ledger."""
    canary = "sk-holdfast-canary-0123456789abcdef"
    before = stage.script
    try:
        for answer in (Say(f"it is {canary}"), Fail(400, f"bad key {canary}")):
            stage.script = _always(answer)
            try:
                await generate_text("any/model", prompt=f"my key is {canary}")
            except HoldfastError:
                continue
    finally:
        stage.script = before
    store = Path(os.environ["HOLDFAST_STORE"])
    files = [file for file in store.parent.glob(f"{store.name}*") if file.is_file()]
    found = [file.name for file in files if canary.encode() in file.read_bytes()]
    if found:
        look.fail(
            "a secret in a prompt, reply or error is kept in plain text", evidence=", ".join(found)
        )
    elif not files:
        look.skip("no ledger was written")
    look.passed("a key in prompt, reply and error: masked in the store")


def _always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _request: answer


_PATIENCE = 60.0
"""Seconds of real time that one run of the crash matrix may take."""


async def crash_matrix(look: Look, stage: Stage) -> None:
    """Kill at every boundary of the journal: the run ends as it does undisturbed."""
    number = 0
    for flow, args, kwargs in stage.inputs():
        whole, journal = await _outcome(stage, flow, args, kwargs, None)
        _, again = await _outcome(stage, flow, args, kwargs, None)
        # A run that draws lots goes its own way each time: then only its end is compared.
        same_way = commands_of(journal) == commands_of(again)
        for boundary in range(1, min(len(journal), 60)):
            number += 1
            ended, killed = await _outcome(stage, flow, args, kwargs, boundary)
            if ended != whole or (same_way and commands_of(killed) != commands_of(journal)):
                cut = journal[boundary - 1]
                look.fail(
                    f"{flow.name}, killed after event {boundary}, ends with {ended}, not as it "
                    f"does undisturbed ({whole})",
                    flow,
                    evidence=f"event {boundary}: {cut.type} {cut.key}\n"
                    + _first_difference(commands_of(journal), commands_of(killed)),
                )
                break
    if number:
        await _restore(look, stage)
    _examples(look, number, "kills, one at each boundary; restored from a backup, runs go on")


def _first_difference(undisturbed: list[str], killed: list[str]) -> str:
    for one, other in zip_longest(undisturbed, killed, fillvalue="nothing more"):
        if one != other:
            return f"undisturbed: {one}; killed: {other}"
    return ""


async def _outcome(
    stage: Stage, flow: Workflow[..., Any], args: Any, kwargs: Any, boundary: int | None
) -> tuple[str, list[Event]]:
    async with drilled(stage, flow, args, kwargs) as (harness, run):
        killed, journal = False, await harness.journal(run.id)
        end = asyncio.get_running_loop().time() + _PATIENCE
        while journal[-1].type not in RUN_ENDS and asyncio.get_running_loop().time() < end:
            if boundary is not None and not killed and len(journal) >= boundary:
                killed = True
                await harness.crash()
            if boundary is None or killed:
                await harness.until_blocked()
            elif not harness.engine.quiet:
                await asyncio.sleep(0.0005)  # a step is under way: what it does takes real time
                journal = await harness.journal(run.id)
                continue
            await harness.approve_all()
            await harness.skip("1h")
            journal = await harness.journal(run.id)
        return journal[-1].type, journal


async def _restore(look: Look, stage: Stage) -> None:
    """Back up a store with a run in the middle, restore it elsewhere, and let the run go on."""
    folder = Path(os.environ[FOLDER])
    flow, args, kwargs = next(stage.inputs())
    async with open_engine(folder / "whole.db", worker=False) as engine:
        run = await start(flow, *args, **kwargs)
        await engine.store.backup(folder / "backup.db")
    store = opener.runs(folder / "backup.db", "wkr_doctor")
    restored = Engine(store, worker_id="wkr_doctor", settings=Settings(), substitute=stage.stand_in)
    await restored.open()
    try:
        for _ in range(600):
            journal = await store.load(run.id)
            if any(e.type == "step.completed" for e in journal) or journal[-1].type in RUN_ENDS:
                break
            await asyncio.sleep(0.1)
        else:
            look.fail("a run restored from a backup did not go on", flow, evidence=run.id)
    finally:
        await restored.close()


def _examples(look: Look, number: int, what: str, else_: str = "") -> None:
    if number:
        look.passed(f"{number} {what}")
    elif not look.findings:
        look.skip(
            else_ or "no workflow has an example: [project.examples.WORKFLOW] in holdfast.toml"
        )


WORKFLOW_DRILLS: dict[str, Drill] = {
    "HF02": round_trips,
    "HF04": replay_always,
    "HF07": waits_expire,
    "HF08": never_stops,
    "HF09": bad_providers,
    "HF18": twice_is_once,
    "HF19": changed_after_approval,
    "HF20": racing_starts,
    "HF21": on_record,
    "HF22": failures_told,
    "HF23": redaction,
    "HF27": rollback,
    "HF28": crash_matrix,
}
