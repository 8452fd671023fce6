"""`holdfast worker`: carry out runs until stopped, then finish what is under way and hand back.

It prints a line for each step it finishes, and so does `holdfast serve`. The lines are read from
the log of all runs once it is on disk, for the runs that this worker has or had in hand. Printing
never holds the work up: it looks a few times a second, and of a flood it shows the last lines.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from holdfast import config
from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.deploy_check import demand
from holdfast.cli.options import (
    add_common,
    add_engine,
    add_grace,
    add_modules,
    grace_seconds,
    store_name,
)
from holdfast.cli.run_text import cost_of, outcome, step_name
from holdfast.cli.tracing import telling_others, tracing
from holdfast.cli.workflow_files import load, load_agents
from holdfast.errors import UsageError
from holdfast.records import RUN_ENDS, RUN_RETRIED, RUN_STUCK, Event, Run, Step
from holdfast.runtime.app import open_engine
from holdfast.runtime.definitions import registered
from holdfast.runtime.engine import Engine
from holdfast.runtime.notifications import EventsInHand
from holdfast.runtime.settings import Settings
from holdfast.runtime.step_records import steps_of
from holdfast.session import current_store
from holdfast.store import opener
from holdfast.store.inspection import Inspection
from holdfast.store.ledger import CallTotals


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_modules(parser)
    parser.add_argument("--quiet", action="store_true", help="no line for each finished step")
    parser.add_argument(
        "--check",
        action="store_true",
        help="first replay the live runs; refuse to work if one would be stuck on this code",
    )
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help="take only runs of workflows with this queue; may be repeated (all)",
    )
    parser.add_argument(
        "--own-version",
        action="store_true",
        help="take only runs of the versions that this code has; deploys shows what is left",
    )
    parser.add_argument(
        "--probes",
        metavar="ADDRESS:PORT",
        help="answer /healthz, /readyz and /metrics there, to whoever asks",
    )
    add_engine(parser)
    add_grace(parser, "worker")
    add_common(parser, _worker)


def _worker(options: argparse.Namespace) -> int:
    grace = grace_seconds(options)
    check_configuration()
    known = load_agents()
    for named in options.modules:
        load(named)
    if options.modules and set(registered()) == known:
        raise UsageError(
            f"{', '.join(options.modules)} defines no workflow", hint="mark one with @workflow"
        )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return asyncio.run(_work(options, grace, sorted(registered())))


def _settings(options: argparse.Namespace) -> Settings:
    """What the configuration says, and what was given on the command line laid over it."""
    found = config.section("runtime", Settings)
    if options.queue:
        found = replace(found, queues=tuple(options.queue))
    unknown = sorted(set(found.queues) - {each.queue for each in registered().values()})
    if unknown:
        raise UsageError(
            f"no workflow has the queue {', '.join(unknown)}",
            hint="@workflow(queue=…) gives it one; without it, it is `default`",
        )
    return replace(found, versions="own") if options.own_version else found


async def _work(options: argparse.Namespace, grace: float, workflows: list[str]) -> int:
    path = store_name(options)
    stop = stopped_by_signals()
    if options.check:
        async with open_engine(path, worker=False) as visitor:
            await demand(visitor)
    chosen = _settings(options)
    async with open_engine(path, grace=grace, settings=chosen, engine=options.engine) as engine:
        worker = engine.me
        if options.json:
            facts = {"worker": worker.id, "pid": os.getpid(), "store": str(path)}
            output.show_json({**facts, "workflows": workflows})
        else:
            output.note(f"worker {worker.id} (pid {os.getpid()}) on {path}")
            output.note(f"workflows: {', '.join(workflows)}")
            output.note("Ctrl-C stops it; runs are kept and go on with the next worker")
        probing = _probed(engine, options.probes)
        async with (
            pruning(engine),
            tracing(engine),
            telling_others(engine),
            probing,
            telling(engine, quiet=options.quiet, json=options.json),
        ):
            name = await stop
        held = len(engine.runs)
        if not options.json:
            output.note(f"{name}: finishing steps for up to {grace:g} s, then giving runs back")
    if options.json:
        output.show_json({"stopped": name, "given_back": held})
    else:
        output.note("stopped")
    return 0


@asynccontextmanager
async def pruning(engine: Engine) -> AsyncGenerator[None]:
    """Let go of runs whose time is over, as the configuration says, and of what deleted runs have
    kept of their sandboxes, while this is open."""
    from holdfast.runtime.retention import keep_pruning
    from holdfast.sandbox.run_snapshots import keep_deleting_orphans

    looking: list[asyncio.Task[None]] = []
    if engine.works:
        work = (keep_pruning(engine), keep_deleting_orphans(engine.store.get))
        looking += [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in looking:
            task.cancel()
        if looking:
            await asyncio.wait(looking)


@asynccontextmanager
async def _probed(engine: Engine, address: str | None) -> AsyncGenerator[None]:
    """Answer probes at an address, if one is given."""
    if address is None:
        yield
        return
    from holdfast.server.probes import probed

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not int(port) <= 65535:
        raise UsageError(f"--probes: {address} is no address", hint="as 127.0.0.1:7421")
    inspection = opener.inspection(current_store())
    try:
        async with probed(engine, inspection, host.strip("[]") or "127.0.0.1", int(port)) as at:
            output.note(f"probes at port {at}")
            yield
    finally:
        inspection.close()


# --- signals ---


def stopped_by_signals() -> asyncio.Future[str]:
    """Done at the first SIGINT or SIGTERM; a second one does not wait for anything."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def handler(number: signal.Signals) -> Callable[[], None]:
        def received() -> None:
            if stop.done():
                # Being killed is something every run survives: no need for ceremony.
                os._exit(128 + number)
            stop.set_result(number.name)

        return received

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handler(number))
    return stop


# --- a line for each finished step ---


MOST_WAITING = 10_000
Tell = Callable[[], None]

PAUSE_SECONDS = 0.2
MOST_LINES = 40
"""In one look: nobody reads more, and writing them all would be most of a busy worker's work."""


class _Writer:
    """Writes in a thread of its own: a reader that does not read must not hold up the work."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Tell | threading.Event] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="holdfast-step-log", daemon=True).start()

    def write(self, lines: list[Tell]) -> None:
        """Write them when it can be done; of a backlog, drop what is new."""
        room = max(MOST_WAITING - self._lines.qsize(), 0)
        for line in lines[:room]:
            self._lines.put(line)

    def close(self, seconds: float) -> None:
        """Wait so long for what is left."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(seconds)

    def _write(self) -> None:
        while not isinstance(line := self._lines.get(), threading.Event):
            try:
                line()
            except (OSError, ValueError):
                return  # nobody reads any more
        line.set()


class StepLog:
    """Tells of steps and runs as they end."""

    def __init__(self, engine: Engine, inspection: Inspection, after: int, *, json: bool) -> None:
        """`after`: the place in the log of all runs to tell from."""
        self._engine, self._inspection, self._json = engine, inspection, json
        self._in_hand = EventsInHand(engine, after)
        self.writer = _Writer()
        self._open: dict[str, list[Event]] = {}
        """Of each run in hand: the events of what has not ended."""

    def close(self) -> None:
        """Be told of no more runs, and wait a moment for what is still to be written."""
        self._in_hand.close()
        self.writer.close(1.0)

    async def follow(self) -> None:
        """Print until cancelled."""
        try:
            async for _ in self._engine.watchers.changes():
                began = time.monotonic()
                await self.look()
                await asyncio.sleep(max(PAUSE_SECONDS, 4 * (time.monotonic() - began)))
        except Exception:
            logging.getLogger("holdfast").exception("steps are no longer told; the work goes on")

    async def look(self) -> None:
        """Tell what is new."""
        new, gone = await self._in_hand.look()
        lines: list[Tell] = []
        for found in new.values():
            lines += await self._lines(found)
        if len(lines) > MOST_LINES and not self._json:
            more = f"… {len(lines) - MOST_LINES} more steps finished"
            lines = [lambda: output.note(more), *lines[-MOST_LINES:]]
        self.writer.write(lines)
        for run_id in gone:
            self._open.pop(run_id, None)

    async def _lines(self, new: list[Event]) -> list[Tell]:
        """What to print for new events of one run: its finished steps, and its end."""
        run_id, last = new[0].run_id, new[-1]
        ended = await self._ended_steps(run_id, new)
        is_over = last.type in RUN_ENDS or last.type == RUN_STUCK
        run = await self._engine.store.get(run_id) if ended or is_over else None
        if run is None:
            return []
        spent: dict[str, CallTotals] = {}
        if ended:
            spent = await self._inspection.ask(lambda view: view.call_totals_by_step(run_id))
        lines = [self._step(run, step, spent.get(step.key)) for step in ended]
        return [*lines, self._end(run)] if is_over else lines

    async def _ended_steps(self, run_id: str, new: list[Event]) -> list[Step]:
        """The steps that ended with these events, in that order; remembers what is still open."""
        before = self._open.get(run_id)
        if before is None or any(event.type == RUN_RETRIED for event in new):
            # Begun by another worker, or to do again what had ended: look at all of it.
            whole = await self._engine.store.events(run_id, 0, -1)
            before = [event for event in whole if event.log < new[0].log]
        events = [*before, *new]
        steps = steps_of(events)
        unfinished = {step.key for step in steps if step.ended_at is None}
        self._open[run_id] = [event for event in events if event.key in unfinished]
        changed = {event.key for event in new}
        ended = [step for step in steps if step.ended_at is not None and step.key in changed]
        return sorted(ended, key=lambda step: step.ended_at or 0.0)

    def _step(self, run: Run, step: Step, spent: CallTotals | None) -> Tell:
        if self._json:
            shown = {**step.as_json(), "seconds": step.seconds}
            for payload in ("input", "output"):
                del shown[payload]  # may be large, and is in the run
            cost = None if spent is None else spent.cost / 1e9
            body = {"run": run.id, "workflow": run.workflow, "step": shown, "cost": cost}
            return lambda: output.show_json(body)
        return lambda: output.note(step_text(run, step, spent))

    def _end(self, run: Run) -> Tell:
        if self._json:
            return lambda: output.show_json({"run": run.id, "ended": run.as_json()})
        took = ""
        if run.started_at is not None and run.finished_at is not None:
            took = f" after {output.duration(run.finished_at - run.started_at)}"
        why = f": {output.short(run.error, 160)}" if run.error else ""
        symbol = output.mark(output.SYMBOLS.get(run.status, "✗"))
        text = f"{symbol} {run.id}  {output.plain(run.workflow)} {run.status}{took}{why}"
        return lambda: output.note(text)


def step_text(run: Run, step: Step, spent: CallTotals | None) -> str:
    """One line: run, step, attempt, time, cost, outcome."""
    cost = cost_of(spent) if spent is not None else ""
    took = output.duration(step.seconds or 0.0)
    name = output.short(step_name(step), 24)
    head = (
        f"{run.id[-8:]} {output.mark(output.SYMBOLS[step.status])} {name:<24} {took:>8}  {cost:>7}"
    )
    return f"{head}  {outcome(step, 80)}".rstrip()


@asynccontextmanager
async def telling(engine: Engine, *, quiet: bool, json: bool) -> AsyncGenerator[None]:
    """Tell of finished steps while this is open, and of the last ones before it closes."""
    if quiet or not engine.works:
        yield
        return
    inspection = opener.inspection(current_store())
    log = StepLog(engine, inspection, await engine.store.log_end(), json=json)
    following = asyncio.create_task(log.follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
        log.close()
        inspection.close()
