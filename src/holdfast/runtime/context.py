"""What workflow bodies and steps can ask for: time, randomness, sleep, events, streams.

Each works in a workflow body, where it is durable and replays. Outside of one, what makes sense
there does the plain thing (`now`, `sleep`, `random`, `uuid4`), and the rest says so.
"""

from __future__ import annotations

import asyncio
import json
import random as random_module
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.durations import Duration, seconds
from holdfast.errors import CodecError, NotInWorkflow, UsageError
from holdfast.runtime.codec import codec_for
from holdfast.runtime.loop import WorkflowLoop
from holdfast.runtime.outcomes import ReceivedEvent, TimedOut
from holdfast.runtime.run_context import RunContext
from holdfast.session import CurrentStep, caller

if TYPE_CHECKING:
    from holdfast.runtime.replay import Execution
    from holdfast.runtime.steps import StepWork


def execution() -> Execution | None:
    """The run whose body is executing here, or None."""
    loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
    return loop.owner if isinstance(loop, WorkflowLoop) else None


def required(what: str) -> Execution:
    """The run whose body is executing here; refuse to do `what` elsewhere."""
    found = execution()
    if found is None:
        raise NotInWorkflow(
            f"{what} can only be called in a workflow body", hint="call it from a @workflow"
        )
    return found


def run_context() -> RunContext:
    """The run that is executing: its id, workflow, key, parent, attributes, attempt and times.

    In a workflow body it is the same on every replay. In a step it is what was known when the
    attempt began.

    >>> await report(run_context().id, run_context().attributes["customer"])
    """
    run = execution()
    if run is not None:
        return run.context
    context: StepContext | None = caller().context
    if context is None:
        raise NotInWorkflow("run_context() is only there in a workflow or a step that one called")
    return context.run


# --- time and chance ---


def now() -> datetime:
    """The time, in UTC; in a workflow, that of the last event, the same on every replay."""
    run = execution()
    return datetime.now(UTC) if run is None else datetime.fromtimestamp(run.now(), UTC)


def random() -> float:
    """A random number from 0 up to 1; in a workflow, the same on every replay."""
    run = execution()
    return random_module.random() if run is None else run.random().random()  # noqa: S311


def uuid4() -> uuid.UUID:
    """A random UUID; in a workflow, the same on every replay."""
    run = execution()
    if run is None:
        return uuid.uuid4()
    return uuid.UUID(int=run.random().getrandbits(128), version=4)


async def sleep(until: Duration | datetime) -> None:
    """Wait for a duration, or until a moment: durably, for any length of time.

    >>> await sleep("3d")
    """
    run = execution()
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise UsageError(
                f"{until} has no time zone", hint="use an aware datetime, such as now() + …"
            )
        delay = (until - now()).total_seconds()
    else:
        delay = seconds(until)
    if run is None:
        await asyncio.sleep(max(delay, 0))
    elif delay > 0:
        await run.sleep_until(run.now() + delay)


# --- events ---


async def wait_for_event(
    name: str,
    *,
    timeout: Duration,
    match: dict[str, Any] | None = None,
    where: Callable[[Any], bool] | None = None,
) -> ReceivedEvent | TimedOut:
    """Wait until somebody sends the event, at most for `timeout`.

    `match`: fields of the payload and their values (dots go deeper). `where`: a predicate on
    the payload. An event counts also if it was sent before the wait began, from the start of
    the run on; each is taken once. Returns the event, or TimedOut, which is false.

    >>> reply = await wait_for_event("approval", match={"order": 7}, timeout="24h")
    >>> if not reply: ...
    """
    run = required("wait_for_event")
    deadline = run.now() + seconds(timeout)
    return await run.wait_for_event(name, plain_match(match), where, deadline)


def plain_match(match: dict[str, Any] | None) -> dict[str, Any]:
    """A match as it is stored."""
    try:
        return json.loads(json.dumps(match or {}))
    except TypeError as error:
        raise CodecError(f"match: {error}", hint="match fields against plain values") from error


class Webhook:
    """A URL, unguessable, whose receiving of a payload this run can wait for."""

    def __init__(self, token: str, name: str) -> None:
        self.token = token
        self.name = name

    @property
    def path(self) -> str:
        """The path of the URL; the server's address goes before it."""
        return f"/hooks/{self.token}"

    async def wait(self, *, timeout: Duration) -> ReceivedEvent | TimedOut:
        """Wait until something is posted to it, at most for `timeout`."""
        return await wait_for_event(self.name, timeout=timeout)

    def __repr__(self) -> str:
        return f"<webhook {self.name}>"  # without the token: it is a secret


async def create_webhook() -> Webhook:
    """A webhook of this run's own. It is open until the run ends.

    >>> hook = await create_webhook()
    >>> await send_mail(customer, f"https://example.com{hook.path}")
    >>> answer = await hook.wait(timeout="7d")
    """
    return Webhook(*await required("create_webhook").create_webhook())


# --- what others can see ---


def set_attributes(**attributes: str | int | float | bool | None) -> None:
    """Set what this run can be found by; None removes one.

    >>> set_attributes(customer="c_17", region="eu")
    """
    for name, value in attributes.items():
        if value is not None and not isinstance(value, str | int | float | bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CodecError(f"$.{name}: an attribute is text, a number or a boolean")
    required("set_attributes").set_attributes(attributes)


def publish(name: str, value: Any) -> None:
    """Let others see a value under a name, at once and while the run goes on.

    The last value of each name can be read from outside: `run.published(name)`, `holdfast runs
    show`, the HTTP API, the inspector. In a body it is published once, however often it replays.
    A step may publish, too; what an attempt that failed has published stays until the next value.

    >>> publish("progress", {"done": 3, "of": 10})
    """
    if not name:
        raise UsageError("a published value needs a name")
    data = codec_for(Any).encode(value, "$.value")
    run = execution()
    if run is not None:
        run.publish(name, data)
        return
    context: StepContext | None = caller().context
    if context is None:
        raise NotInWorkflow("publish can only be called in a workflow or a step")
    context.publish(name, data)


async def write_stream(chunk: Any, *, stream: str = "output") -> None:
    """Add a piece to one of the run's streams, for whoever reads it live.

    In a workflow body each piece is written once. In a step that is retried, the pieces of
    the failed attempt stay; readers see the attempt with each.
    """
    data = codec_for(Any).encode(chunk, "$.chunk")
    run = execution()
    if run is not None:
        run.write_stream(stream, data)
        return
    context: StepContext | None = caller().context
    if context is None:
        raise NotInWorkflow("write_stream can only be called in a workflow or a step")
    await context.write(stream, data)


def patched(patch: str) -> bool:
    """Whether to take the new way at a place where a workflow's code was changed.

    True in new runs, and in runs that had not come to this place yet; False in runs that were
    past it when the change came. Once no old run is left, the check and the old way can go.

    >>> if patched("check-stock-first"):
    ...     await check_stock(order)
    """
    run = execution()
    return True if run is None else run.patched(patch)


# --- in a step ---


class StepContext:
    """What a step can know and say about itself."""

    __slots__ = (
        "_work",
        "attempt",
        "cancelled",
        "idempotency_key",
        "run",
        "run_id",
        "step",
        "workflow",
    )

    def __init__(self, current: CurrentStep, run: RunContext, work: StepWork) -> None:
        self._work = work
        self.run = run
        """The run as it stood when the attempt began."""
        self.run_id, self.workflow, self.step, _, self.attempt, key = current
        self.idempotency_key = key
        """The same for every attempt of this step: hand it to whoever must not act twice."""
        self.cancelled = False
        """True once nobody wants the result; a step in a thread should look now and then."""

    def heartbeat(self) -> None:
        """Say that the step is alive: puts off `idle_timeout`."""
        self._work.beat()

    def publish(self, name: str, data: bytes) -> None:
        """Let others see a value at once; see `holdfast.publish`."""
        self._work.publish(name, data)

    async def write(self, stream: str, data: bytes) -> None:
        """Add a piece to one of the run's streams; see `write_stream`."""
        await self._work.write(stream, data)

    def __repr__(self) -> str:
        return f"<step {self.step} of {self.run_id}, attempt {self.attempt}>"


def step_context() -> StepContext:
    """The attempt that is executing: its number, its idempotency key, its heartbeat.

    >>> await charge(card, amount, idempotency_key=step_context().idempotency_key)
    """
    found: StepContext | None = caller().context
    if found is None:
        raise NotInWorkflow("step_context() is only there in a step that a workflow has called")
    return found
