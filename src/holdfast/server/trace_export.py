"""Runs as OpenTelemetry traces, sent over OTLP when they have ended.

A trace is made from what is on record, not while the work is done: it costs the work nothing, it
has the steps of every worker that had the run in hand, and nothing is loaded unless one of the
standard variables names a collector. Ids are made from the run's id and the step's key, so that
they are the same whoever sends them: a child is in the trace of the run that began it all.

Names and numbers go out, never what was said: no prompts, arguments, results, files or output.
Model calls, tools and agents are named by the GenAI conventions.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.agents import run_words
from holdfast.errors import UsageError
from holdfast.records import RUN_ENDS, RUN_RETRIED, Event, Run, Step
from holdfast.records.calls import NANO
from holdfast.records.sandboxes import CommandRecord
from holdfast.runtime.engine import Engine
from holdfast.runtime.notifications import EventsInHand
from holdfast.runtime.step_records import steps_of
from holdfast.store import opener
from holdfast.store.inspection import ActivityPage, CallRow, Inspection, View

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("holdfast.telemetry")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PAGE = 1000
LOOK_SECONDS = 0.5
LAST_SECONDS = 10.0
"""How long the process waits at its end for what is still to be sent."""
_FAILED = ("failed", "timed out")


def wanted() -> bool:
    """Whether the standard variables ask for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() in ("none", ""):
        return False
    return any(os.environ.get(name) for name in ENDPOINTS)


@asynccontextmanager
async def exporting(engine: Engine) -> AsyncGenerator[None]:
    """Send the traces of runs that end in this worker's hands, while this is open."""
    if not (engine.works and wanted()):
        yield
        return
    exporter = _exporter()
    inspection = opener.inspection(engine.store.name)
    export = TraceExport(engine, inspection, exporter, await engine.store.log_end())
    following = asyncio.create_task(export.follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await export.look()
        except TimeoutError:
            log.warning("the last traces were not sent: the collector does not answer in time")
        export.close()
        inspection.close()


def _exporter() -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise UsageError(
            "$OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, but OpenTelemetry is not installed",
            hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        ) from error
    return OTLPSpanExporter()


class TraceExport:
    """Follows the log, and sends the trace of each run that was in hand here and has ended."""

    def __init__(
        self, engine: Engine, inspection: Inspection, exporter: SpanExporter, after: int
    ) -> None:
        """`after`: the place in the log of all runs to look from."""
        self._engine, self._inspection, self._exporter = engine, inspection, exporter
        self._in_hand = EventsInHand(engine, after)
        self._unsent: dict[str, None] = {}
        """Runs that have ended, in that order: a look that is cancelled leaves some."""

    def close(self) -> None:
        """Follow no more."""
        self._in_hand.close()
        self._exporter.shutdown()

    async def follow(self) -> None:
        """Send until cancelled."""
        try:
            async for _ in self._engine.watchers.changes():
                await self.look()
                await asyncio.sleep(LOOK_SECONDS)
        except Exception:
            log.exception("traces are no longer sent; the work goes on")

    async def look(self) -> None:
        """Send the traces of what has ended since the last look."""
        new, _ = await self._in_hand.look()
        for run_id, events in new.items():
            if any(event.type in RUN_ENDS for event in events):
                self._unsent[run_id] = None
        for run_id in list(self._unsent):
            await self._send(run_id)
            del self._unsent[run_id]

    async def _send(self, run_id: str) -> None:
        store = self._engine.store
        run = await store.get(run_id)
        if run is None:
            return  # deleted meanwhile
        journal = await store.load(run_id)
        root = run
        while root.parent_id is not None:
            above = await store.get(root.parent_id)
            if above is None:
                break
            root = above
        calls = await self._all(lambda view, at: view.activity_calls(run_id, at, PAGE))
        commands = await self._all(lambda view, at: view.activity_commands(run_id, at, PAGE))
        spans = Trace(run, root.id, journal, calls, commands).spans()
        result = await asyncio.to_thread(self._exporter.export, spans)
        if result.name != "SUCCESS":
            log.warning("the trace of %s was not sent; the collector's answer is above", run_id)

    async def _all(self, page: Callable[[View, str | None], ActivityPage[Any]]) -> list[Any]:
        found: list[Any] = []
        while True:
            at = found[-1].id if found else None
            got = await self._inspection.ask(lambda view, at=at: page(view, at))
            found += got.rows
            if not got.more:
                return found


@dataclass(frozen=True)
class Trace:
    """A run since it began, or since it was last retried, as spans."""

    run: Run
    root: str
    """The id of the run that began it all, whose trace this is part of."""
    journal: Sequence[Event]
    calls: Sequence[CallRow]
    commands: Sequence[CommandRecord]

    def spans(self) -> list[ReadableSpan]:
        """The run's span first, then those of its steps, model calls and commands."""
        retries = [event for event in self.journal if event.type == RUN_RETRIED]
        since = retries[-1].at if retries else 0.0
        started = since or self.run.started_at or self.run.created_at
        ended = self.run.finished_at or self.journal[-1].at
        steps = [
            step
            for step in steps_of(list(self.journal))
            if step.ended_at is not None and step.ended_at >= since
        ]
        top = self._span_id("run", str(len(retries)))
        above = None if self.run.parent_id is None else _hashed(8, self.run.parent_id, "run", "0")
        attributes: dict[str, Any] = {
            "holdfast.run.id": self.run.id,
            "holdfast.run.status": self.run.status,
            "holdfast.workflow.name": self.run.workflow,
            "holdfast.workflow.version": self.run.version,
            "holdfast.run.retries": len(retries),
            "holdfast.run.forked_from": self.run.forked_from,
        }
        error = _error_type(self.run, self.journal[-1])
        spans = [
            self._span(f"run {self.run.workflow}", top, above, (started, ended), attributes, error)
        ]
        own = {step.key: self._span_id("step", step.key, str(step.seq)) for step in steps}
        spans += [self._step(step, own[step.key], top) for step in steps]
        for call in self.calls:
            if call.finished_at is not None and call.started_at >= since:
                spans.append(self._call(call, own.get(call.step_key or "", top)))
        for command in self.commands:
            if command.ended_at is not None and command.started_at.timestamp() >= since:
                spans.append(self._command(command, own.get(command.step_key or "", top)))
        return spans

    def _step(self, step: Step, id: int, top: int) -> ReadableSpan:
        name = f"{step.kind} {step.name}"
        attributes: dict[str, Any] = {
            "holdfast.run.id": self.run.id,
            "holdfast.step.name": step.name,
            "holdfast.step.key": step.key,
            "holdfast.step.kind": step.kind,
            "holdfast.step.attempts": step.attempts,
        }
        if step.name.startswith(run_words.TOOL):
            tool = step.name.removeprefix(run_words.TOOL)
            name = f"execute_tool {tool}"
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        error = step.error.type if step.error is not None else None
        if error is None and step.status in _FAILED:
            error = step.status
        times = (step.started_at, step.ended_at or step.started_at)
        return self._span(name, id, top, times, attributes, error)

    def _call(self, call: CallRow, above: int) -> ReadableSpan:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call.provider,
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": call.served,
            "gen_ai.usage.input_tokens": call.input_tokens,
            "gen_ai.usage.output_tokens": call.output_tokens,
            "gen_ai.response.finish_reasons": [call.finish] if call.finish else None,
            "holdfast.call.id": call.id,
            "holdfast.call.cost_usd": None if call.cost is None else call.cost / NANO,
            "holdfast.call.attempts": len(call.attempts),
        }
        id = self._span_id("call", call.id)
        times = (call.started_at, call.finished_at or call.started_at)
        return self._span(f"chat {call.model}", id, above, times, attributes, call.error, out=True)

    def _command(self, command: CommandRecord, above: int) -> ReadableSpan:
        program = command.argv[0].rpartition("/")[2] if command.argv else "?"
        attributes: dict[str, Any] = {
            "process.executable.name": program,
            "process.exit.code": command.exit_code,
            "holdfast.sandbox.id": command.sandbox_id,
            "holdfast.command.id": command.id,
            "holdfast.command.ended": command.ended,
            "holdfast.command.cpu_seconds": command.cpu_seconds,
            "holdfast.command.peak_memory": command.peak_memory,
        }
        ended: datetime = command.ended_at or command.started_at
        times = (command.started_at.timestamp(), ended.timestamp())
        # That a program has failed is a finding, not an error of the one who ran it.
        error = command.ended if command.ended != "exited" else None
        id = self._span_id("command", command.id)
        return self._span(f"sandbox {program}", id, above, times, attributes, error)

    def _span_id(self, *parts: str) -> int:
        return _hashed(8, self.run.id, *parts)

    def _span(
        self,
        name: str,
        id: int,
        parent: int | None,
        times: tuple[float, float],
        attributes: Mapping[str, Any],
        error: str | None,
        *,
        out: bool = False,
    ) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        def context(span: int) -> SpanContext:
            trace = _hashed(16, self.root)
            return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(1))

        known = {key: value for key, value in attributes.items() if value is not None}
        if error is not None:
            known["error.type"] = error
        return ReadableSpan(
            name,
            context(id),
            None if parent is None else context(parent),
            _resource(),
            known,
            kind=SpanKind.CLIENT if out else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET if error is None else StatusCode.ERROR),
            start_time=int(times[0] * 1e9),
            end_time=int(max(times) * 1e9),
            instrumentation_scope=InstrumentationScope("holdfast", __version__),
        )


@functools.cache
def _resource() -> Resource:
    """What sends: as the standard variables name it, or Holdfast."""
    from opentelemetry.sdk.resources import Resource

    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if named or os.environ.get("OTEL_SERVICE_NAME"):
        return Resource.create()
    return Resource.create({"service.name": "holdfast"})


def _error_type(run: Run, last: Event) -> str | None:
    """What kind of error a run ended with."""
    if run.status != "failed":
        return None
    return str(last.facts.get("error", {}).get("type", "error"))


def _hashed(size: int, *parts: str) -> int:
    """A number of so many bytes, the same for the same words, and never zero."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1
