"""Starting, finding and steering runs: the functions and the handle that users hold.

They speak to the engine at hand (see `current_engine`). In a workflow body, `start` and
`send_event` are durable steps, and `result()` waits durably; what else would steer runs from there
belongs into a step.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.durations import Duration, seconds
from holdfast.errors import (
    NotFound,
    NotInWorkflow,
    PayloadTooLarge,
    Refused,
    RunMismatch,
    RunStuck,
    UsageError,
)
from holdfast.ids import derived_id, new_id
from holdfast.records import RUN_CONTINUED, RUN_ENDS, RUN_STUCK, ErrorInfo, Event, Status
from holdfast.records import Run as RunRecord
from holdfast.records import Step as StepRecord
from holdfast.runtime import forking, updates
from holdfast.runtime.app import current_engine
from holdfast.runtime.bulk import BulkAction, BulkResult, steer_all
from holdfast.runtime.codec import Codec, codec_for
from holdfast.runtime.context import execution, step_context
from holdfast.runtime.definitions import Workflow, find_workflow, registered, step
from holdfast.runtime.engine import Engine
from holdfast.runtime.outcomes import EndedRun, outcome_of_run
from holdfast.runtime.step_records import steps_of
from holdfast.store.base import Created, KeyPolicy, NewRun, Page, RunFilter

P = ParamSpec("P")
R = TypeVar("R")


class RunHandle(Generic[R]):
    """A run, by its id: ask how it stands, wait for it, steer it."""

    def __init__(self, id: str, result: Codec) -> None:
        self.id = id
        self._result = result

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def record(self) -> RunRecord:
        """The run as it is now."""
        engine = await _engine("a run's record")
        found = await engine.store.get(self.id)
        if found is None:
            raise _no_run(self.id)
        return found

    async def status(self) -> Status:
        """Where the run is: pending, running, waiting, completed, …"""
        return (await self.record()).status

    async def result(self) -> R:
        """Wait until the run has ended: what it returned; or RunFailed, RunCancelled raised.

        A run that is stuck raises RunStuck; once it was resumed it can be awaited again.
        """
        body = execution()
        if body is not None:
            return await body.wait_for_run(self.id, self._result)
        engine = await _engine("result")
        last = await _end_of(engine, self.id)
        while last.type == RUN_CONTINUED:
            last = await _end_of(engine, last.facts["run_id"])
        ended = EndedRun(last.run_id, last.type, last.facts, last.value)
        return outcome_of_run(ended, self._result)

    async def steps(self) -> list[StepRecord]:
        """What the run has done so far: steps, timers, waits and children, in order."""
        return steps_of(await self._journal())

    async def events(self, after: int = 0) -> list[Event]:
        """The run's journal, from behind an event on."""
        engine = await _engine("events")
        return await engine.store.events(self.id, after, -1)

    async def stream(self, name: str = "output", start: int = 0) -> AsyncIterator[Any]:
        """The pieces of a stream, from an index on, live until the run has ended.

        To go on after a lost connection, start at the number of pieces received.
        """
        engine = await _engine("stream")
        async for _ in engine.watchers.changes():
            ended = (await self.record()).ended  # asked first: nothing comes after the end
            while chunks := await engine.store.chunks(self.id, name, start, 100):
                for chunk in chunks:
                    yield json.loads(chunk.data)
                start += len(chunks)
            if ended:
                return

    async def published(self, name: str | None = None) -> Any:
        """The last value the run has published under a name, or None; without one, all by name.

        >>> await run.published("progress")
        """
        engine = await _engine("what is published")
        found = await engine.store.published(self.id)
        values = {each.name: codec_for(Any).decode(each.value, "$.value") for each in found}
        return values if name is None else values.get(name)

    async def update(
        self,
        name: str,
        payload: Any = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Send the run an update and wait for what its body replies to it.

        `id`: the same update is carried out once; asked again, it gives the same answer.
        `timeout`: how long to wait; then UpdateTimeout is raised, and the update stays. Raises
        UpdateRejected if the body refuses it, UpdateUnanswered if the run ends without an answer.
        In a workflow the wait is durable.

        >>> await run.update("add_item", {"sku": "a-1"}, id="click-77")
        """
        body = execution()
        if body is not None:
            return await updates.ask_from_body(body, self.id, name, payload, id, timeout)
        engine = await current_engine()
        sent = await updates.send(engine, self.id, name, payload, id or new_id("upd"))
        if not sent.ended:
            sent = await updates.ended(engine, self.id, sent.id, timeout)
        return updates.outcome(sent)

    async def cancel(self) -> None:
        """Ask the run to stop: its `finally` blocks run, and may call steps."""
        engine = await _engine("cancel")
        await engine.store.request(self.id, "cancel", engine.clock.now())

    async def terminate(self) -> None:
        """End the run without its `finally` blocks: for a body that does not heed `cancel`.

        Its steps under way are interrupted; the children it waits for are cancelled.
        """
        engine = await _engine("terminate")
        await engine.store.request(self.id, "terminate", engine.clock.now())

    async def pause(self) -> None:
        """Let the steps under way finish, and begin nothing new until `resume`."""
        engine = await _engine("pause")
        await engine.store.request(self.id, "pause", engine.clock.now())

    async def resume(self) -> None:
        """Let a paused or stuck run go on."""
        engine = await _engine("resume")
        await engine.store.resume(self.id, engine.clock.now())

    async def retry(self) -> None:
        """Let a failed run go on from where it failed; what succeeded is not done again."""
        engine = await _engine("retry")
        await engine.store.retry(self.id, engine.clock.now())

    async def delete(self) -> None:
        """Delete the run, which has ended, with all that belongs to it; the children its body
        has called go with it. What it has spent stays in the totals."""
        engine = await _engine("delete")
        await engine.store.delete(self.id, engine.clock.now())

    async def fork(
        self,
        from_step: str | None = None,
        *,
        input: Mapping[str, Any] | None = None,
        result: Any = forking.UNCHANGED,
    ) -> RunHandle[R]:
        """A new run that takes over what this one did before a step, and goes on from there.

        `from_step` is a step's key (as `steps()` gives it); without it, nothing is taken over.
        `input` replaces arguments: the step's, or without a step the workflow's. `result`
        replaces the step's result instead of running it.
        """
        engine = await _engine("fork")
        record, journal = await self.record(), await self._journal()
        history = forking.history_before(journal, from_step, input, result)
        new = forking.new_run(record, engine.clock.now())
        if from_step is None and input is not None:
            new = _with_limits(new, history[0].value or b"{}")
        await engine.store.fork(new, self.id, forking.taken_over(new, self.id, history))
        return RunHandle(new.id, self._result)

    async def _journal(self) -> list[Event]:
        engine = await _engine("the journal")
        journal = await engine.store.load(self.id)
        if not journal:
            raise _no_run(self.id)
        return journal


def _with_limits(new: NewRun, input: bytes) -> NewRun:
    """A fork with another input: in the lane that its input says."""
    workflow = registered().get(new.workflow)
    if workflow is None or workflow.flow.is_unlimited:
        return new
    args, kwargs = workflow.signature.decode_arguments(input)
    flow = workflow.flow
    return replace(
        new,
        run_limit=flow.run_limit,
        lane=workflow.lane(args, kwargs),
        lane_limit=flow.lane_limit,
        pace=flow.pace,
    )


async def _end_of(engine: Engine, run_id: str) -> Event:
    """Wait until a run has ended: the event that says how."""
    # Closed here: a generator that is left to the garbage collector is closed by a task of its own.
    async with aclosing(engine.watchers.ends(run_id)) as ends:
        async for told in ends:
            if told is None and run_id in engine.runs:
                continue  # it is in our own hands: we shall be told
            last = told or await _last_event(engine, run_id)
            if last is not None and last.type == RUN_STUCK:
                raise _stuck(run_id, str(ErrorInfo.from_json(last.facts["error"])))
            if last is not None and last.type in RUN_ENDS:
                return last
    raise Refused(f"Holdfast was closed while waiting for {run_id}")


async def _last_event(engine: Engine, run_id: str) -> Event | None:
    """The event that ended the run, if it has ended."""
    record = await engine.store.get(run_id)
    if record is None:
        raise _no_run(run_id)
    if record.status == "stuck":
        raise _stuck(run_id, str(record.error))
    return await engine.store.last_event(run_id) if record.ended else None


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id}", hint="holdfast runs list shows what there is")


def _stuck(run_id: str, why: str) -> RunStuck:
    hint = "mend the code or the store, then resume it"
    return RunStuck(f"{run_id} is stuck: {why}", hint=hint)


async def _engine(what: str) -> Engine:
    if execution() is not None:
        raise NotInWorkflow(f"{what} of a run can't be had in a workflow body", hint="use a @step")
    return await current_engine()


# --- starting ---


async def start(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
    """Start a run and return its handle at once; it goes on durably in the background.

    >>> run = await start(evaluate_code, "Write is_palindrome")
    >>> await run.result()
    """
    if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{workflow!r} is no workflow", hint="mark it with @workflow")
    result = workflow.signature.result
    lane = workflow.lane(args, kwargs)
    body = execution()
    if body is None:
        engine = await current_engine()
        limit = engine.settings.max_payload
        input = workflow.signature.encode_arguments(args, kwargs, limit)
        created = await engine.create(workflow.new_run(input, lane, engine.clock.now()))
        return RunHandle(created.run.id, result)
    input = workflow.signature.encode_arguments(args, kwargs, body.max_payload)
    options = workflow.start_options
    request = {
        "workflow": workflow.name,
        "input": input.decode(),
        "lane": lane,
        "key": options.key,
        "attributes": options.attributes,
        "delay": seconds(options.delay),
    }
    if options.key_policy != "return":  # journals from before there was one must replay
        request["key_policy"] = options.key_policy
    if options.timeout is not None:
        request["timeout"] = seconds(options.timeout)
    if options.priority is not None:
        request["priority"] = seconds(options.priority)
    return RunHandle(await _start(request), result)


@step(name="start")
async def _start(request: dict[str, Any]) -> str:
    """Starting a run from a workflow. Its id comes from the step's, so twice makes one."""
    engine, context = await current_engine(), step_context()
    workflow = find_workflow(request["workflow"]).options(
        key=request["key"],
        attributes=request["attributes"],
        delay=request["delay"],
        key_policy=request.get("key_policy", "return"),
        timeout=request.get("timeout"),
        priority=request.get("priority"),
    )
    run_id = derived_id("run", context.run_id, context.idempotency_key)
    input, lane = request["input"].encode(), request["lane"]
    new = workflow.new_run(input, lane, engine.clock.now(), run_id)
    created = await engine.create(replace(new, parent_id=context.run_id))
    return created.run.id


async def start_by_name(
    name: str,
    input: bytes,
    *,
    key: str | None = None,
    attributes: dict[str, Any] | None = None,
    key_policy: KeyPolicy = "return",
    timeout: float | None = None,
) -> RunHandle[Any]:
    """Start a run of a workflow known by name, with its arguments as a JSON object."""
    workflow = find_workflow(name).options(
        key=key, attributes=attributes, key_policy=key_policy, timeout=timeout
    )
    created = await create_run(await current_engine(), workflow, input)
    return RunHandle(created.run.id, workflow.signature.result)


async def create_run(
    engine: Engine,
    workflow: Workflow[..., Any],
    input: bytes,
    *,
    same_input: bool = False,
    run_id: str | None = None,
) -> Created:
    """Start a run with its arguments as a JSON object, and say whether it was there before.

    `same_input`: raise RunMismatch if it was, with other arguments. `run_id`: the id of a new
    one, for those who must know it before it begins.
    """
    args, kwargs = workflow.signature.decode_arguments(input)
    checked = workflow.signature.encode_arguments(args, kwargs, engine.settings.max_payload)
    lane = workflow.lane(args, kwargs)
    created = await engine.create(workflow.new_run(checked, lane, engine.clock.now(), run_id))
    # A run that another has gone on as has an input that nobody has asked for.
    # One that gathers several starts has the input of another, or of all.
    same_input = same_input and not workflow.flow.gathers
    if created.existed and same_input and created.run.continued_from is None:
        first = await engine.store.events(created.run.id, 0, 1)
        if first[0].value != checked:
            raise RunMismatch(
                f"the key of {created.run.id} was used before, for another input",
                hint="use one key per request; a changed request needs a new one",
            )
    return created


# --- finding ---


async def get_run(run_id: str) -> RunHandle[Any]:
    """The handle of a run that exists."""
    if execution() is not None:
        return RunHandle(run_id, codec_for(Any))
    engine = await current_engine()
    record = await engine.store.get(run_id)
    if record is None:
        raise _no_run(run_id)
    known = registered().get(record.workflow)
    return RunHandle(run_id, known.signature.result if known else codec_for(Any))


async def list_runs(
    *,
    workflow: str | None = None,
    status: Status | Sequence[Status] = (),
    attributes: dict[str, Any] | None = None,
    parent: str | None = None,
    top_level: bool = False,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page:
    """A page of runs, newest first. Hand the page's cursor in to get the next.

    `top_level`: without those that other runs started.
    """
    engine = await _engine("a list")
    where = RunFilter(
        workflow=workflow,
        status=(status,) if isinstance(status, str) else tuple(status),
        attributes=attributes or {},
        parent_id=parent,
        top_level=top_level,
        created_after=created_after.timestamp() if created_after else None,
        created_before=created_before.timestamp() if created_before else None,
    )
    return await engine.store.list_runs(where, limit, cursor)


async def steer_runs(
    action: BulkAction,
    *,
    workflow: str | None = None,
    status: Status | Sequence[Status] = (),
    attributes: dict[str, Any] | None = None,
    parent: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    dry_run: bool = False,
) -> BulkResult:
    """Cancel, terminate, retry or delete all runs that fit; `dry_run`: only count them.

    Some at a time, so that workers go on meanwhile. Runs in a state that the action is not for
    are left out; those that change theirs on the way are counted as refused.

    >>> await steer_runs("retry", workflow="ship", dry_run=True)
    """
    engine = await _engine("steering many")
    where = RunFilter(
        workflow=workflow,
        status=(status,) if isinstance(status, str) else tuple(status),
        attributes=attributes or {},
        parent_id=parent,
        created_after=created_after.timestamp() if created_after else None,
        created_before=created_before.timestamp() if created_before else None,
    )
    return await steer_all(engine, action, where, dry_run=dry_run)


# --- events ---


async def send_event(
    name: str, payload: Any = None, *, id: str | None = None, run: str | None = None
) -> bool:
    """Send an event to the runs that wait for it, or will.

    `id`: the same id is delivered once; False is returned for a repetition. `run`: for this
    run alone. In a workflow the event is sent once, whatever happens.
    """
    if name.startswith("@"):
        raise UsageError(f"the event name {name!r} is reserved", hint="it may not begin with @")
    data = codec_for(Any).encode(payload, "$.payload")
    if execution() is not None:
        return await _send_event({"name": name, "payload": payload, "id": id, "run": run})
    return await _send(name, data, id or f"evt_{os.urandom(12).hex()}", run)


@step(name="send_event")
async def _send_event(event: dict[str, Any]) -> bool:
    event_id = event["id"] or step_context().idempotency_key
    data = json.dumps(event["payload"]).encode()
    return await _send(event["name"], data, event_id, event["run"])


async def _send(name: str, data: bytes, event_id: str, run: str | None) -> bool:
    engine = await current_engine()
    if len(data) > engine.settings.max_payload:
        raise PayloadTooLarge(f"the payload of {name!r} has {len(data):,} bytes: over the limit")
    if run is not None and await engine.store.get(run) is None:
        raise _no_run(run)
    return await engine.store.send(name, data, event_id, run, engine.clock.now())


async def receive_webhook(token: str, payload: Any, *, id: str | None = None) -> None:
    """Hand what was posted to a webhook's URL to the run that waits for it."""
    engine = await _engine("a webhook")
    found = await engine.store.webhook(token)
    if found is None:
        raise NotFound("there is no such webhook, or its run has ended")
    run_id, name = found
    data = codec_for(Any).encode(payload, "$.payload")
    await _send(name, data, id or f"evt_{os.urandom(12).hex()}", run_id)
