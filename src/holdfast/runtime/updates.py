"""Updates: events with an answer.

The sender waits for what the body replies. In the body:

    update = await wait_for_update("add_item", timeout="1h")
    if update:
        basket.append(update.payload)
        update.reply(len(basket))

An update is carried out once, however often it is sent with the same id, and whoever asks again
gets the same answer. A run that ends without answering tells the sender so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.durations import Duration, seconds
from holdfast.errors import (
    PayloadTooLarge,
    UpdateRejected,
    UpdateTimeout,
    UpdateUnanswered,
    UsageError,
)
from holdfast.records import ErrorInfo
from holdfast.records.live import ANSWER, UPDATE, UpdateRecord, update_of
from holdfast.runtime import failures
from holdfast.runtime.app import current_engine
from holdfast.runtime.codec import codec_for
from holdfast.runtime.context import plain_match, required, step_context
from holdfast.runtime.definitions import step
from holdfast.runtime.engine import Engine
from holdfast.runtime.outcomes import ReceivedEvent, TimedOut
from holdfast.runtime.replay import Execution


@dataclass(slots=True, eq=False)
class Update:
    """An update that a body has received, and has to answer: once, by a reply or a rejection."""

    id: str
    name: str
    payload: Any
    _event_id: str
    _answered: bool = False

    def reply(self, value: Any = None) -> None:
        """Answer: the sender's `update` returns this value."""
        self._answer(codec_for(Any).encode(value, "$.reply"), None)

    def reject(self, error: BaseException | str) -> None:
        """Refuse: the sender's `update` raises UpdateRejected, with the error as its cause."""
        reason = UpdateRejected(error) if isinstance(error, str) else error
        self._answer(None, failures.describe(reason).as_json())

    def _answer(self, value: bytes | None, error: dict[str, Any] | None) -> None:
        body = required("an update's answer")
        if self._answered:
            raise UsageError(f"the update {self.id} was answered before", hint="answer it once")
        self._answered = True
        body.answer_update(self.name, self._event_id, value, error)


async def wait_for_update(
    name: str,
    *,
    timeout: Duration,
    match: dict[str, Any] | None = None,
    where: Callable[[Any], bool] | None = None,
) -> Update | TimedOut:
    """Wait until somebody sends this run the update, at most for `timeout`; then answer it.

    `match` and `where` choose by the payload, as in `wait_for_event`. Updates are taken in the
    order they were sent, each once. Returns the update, or TimedOut, which is false.

    >>> update = await wait_for_update("add_item", timeout="1h")
    >>> if update:
    ...     update.reply(await add(update.payload))
    """
    body = required("wait_for_update")
    deadline = body.now() + seconds(timeout)
    received = await body.wait_for_event(UPDATE + name, plain_match(match), where, deadline)
    if isinstance(received, TimedOut):
        return TimedOut(name)
    return Update(update_of(received.id)[1], name, received.payload, received.id)


# --- the sender ---


async def send(engine: Engine, run_id: str, name: str, payload: Any, id: str) -> UpdateRecord:
    """Send an update, or find the one with this id; how it stands."""
    if not name or name.startswith("@"):
        raise UsageError(f"{name!r} is no name of an update", hint="it may not begin with @")
    data = codec_for(Any).encode(payload, "$.payload")
    if len(data) > engine.settings.max_payload:
        raise PayloadTooLarge(f"the payload of {name!r} has {len(data):,} bytes: over the limit")
    return await engine.store.send_update(run_id, name, data, id, engine.clock.now())


async def ended(
    engine: Engine, run_id: str, id: str, timeout: Duration | None = None
) -> UpdateRecord:
    """Wait until an update was answered, or won't be; raise UpdateTimeout if that takes longer."""
    try:
        async with asyncio.timeout(None if timeout is None else seconds(timeout)):
            async for _ in engine.watchers.changes():
                update = await engine.store.update(run_id, id)
                if update is not None and update.ended:
                    return update
    except TimeoutError:
        raise _too_late(run_id, id) from None
    raise UpdateTimeout(f"Holdfast was closed while waiting for the answer to {id}")


def outcome(update: UpdateRecord) -> Any:
    """What the body replied; raises what the sender should see raised."""
    if update.status == "answered":
        return codec_for(Any).decode(update.value or b"null", "$.reply")
    assert update.error is not None
    if update.status == "rejected":
        cause = failures.rebuild(update.error)
        if isinstance(cause, UpdateRejected):
            raise cause
        raise UpdateRejected(f"{update.name} was rejected: {update.error}") from cause
    raise UpdateUnanswered(f"{update.name} was not answered: {update.error.message}")


async def ask_from_body(
    body: Execution, run_id: str, name: str, payload: Any, id: str | None, timeout: Duration | None
) -> Any:
    """Send an update from a workflow, and wait durably for the answer."""
    known = await _send_update({"run": run_id, "name": name, "payload": payload, "id": id})
    update = _from_json(known)
    if not update.ended:
        deadline = None if timeout is None else body.now() + seconds(timeout)
        event = f"{ANSWER}{update.chain}/{update.id}"
        told = await body.wait_for_event(event, {}, None, deadline)
        if not isinstance(told, ReceivedEvent):
            raise _too_late(run_id, update.id)
        update = _from_json({**known, **told.payload})
    return outcome(update)


@step(name="send_update")
async def _send_update(update: dict[str, Any]) -> dict[str, Any]:
    """Sending an update from a workflow. Its id comes from the step's, so twice makes one."""
    engine = await current_engine()
    id = update["id"] or step_context().idempotency_key
    sent = await send(engine, update["run"], update["name"], update["payload"], id)
    return {
        "chain": sent.chain,
        "id": sent.id,
        "run_id": sent.run_id,
        "name": sent.name,
        "status": sent.status,
        "value": json.loads(sent.value or b"null"),
        "error": None if sent.error is None else sent.error.as_json(),
    }


def _from_json(told: dict[str, Any]) -> UpdateRecord:
    return UpdateRecord(
        told["chain"],
        told["id"],
        told["run_id"],
        told["name"],
        told["status"],
        0.0,
        value=json.dumps(told["value"]).encode(),
        error=None if told["error"] is None else ErrorInfo.from_json(told["error"]),
    )


def _too_late(run_id: str, id: str) -> UpdateTimeout:
    return UpdateTimeout(
        f"{run_id} has not answered {id} in time",
        hint="the update stays: ask again with the same id to get its answer",
    )
