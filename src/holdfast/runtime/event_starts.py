"""Events that start runs: `@workflow(on="order.created", match={…}, key="order", cancel_on=…)`.

A worker listens for the workflows it knows: it makes of each new message the runs to start and to
cancel, and hands that to the store, which does it once. Who sends an event need not know who
listens.
"""

from __future__ import annotations

import inspect
import json
import logging
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.records import Message
from holdfast.records.subscriptions import Reaction
from holdfast.runtime import definitions
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.flow_control import value_at
from holdfast.store.base import NewRun
from holdfast.store.subscriptions import CancelKey, Dealt

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

log = logging.getLogger("holdfast")

AT_ONCE = 100


class EventStarts:
    """What a worker does about events that start and cancel runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._declared: int | None = None
        self._listening: list[str] = []

    async def tend(self) -> None:
        """Do what new messages come to."""
        engine = self._engine
        if self._declared != definitions.registrations():
            declared = definitions.registrations()
            self._listening = await self._declare()
            self._declared = declared
        while self._listening:
            known = engine.known_workflows()
            found = await engine.store.news(self._listening, AT_ONCE)
            for subscription, messages in found:
                workflow, now = known[subscription.workflow], engine.clock.now()
                effects = [
                    (each.id, effect_of(workflow, subscription.reactions[each.name], each, now))
                    for each in messages
                ]
                await engine.store.deal(Dealt(workflow.name, effects, now))
            if not found:
                return

    async def _declare(self) -> list[str]:
        """Have the store's subscriptions be those of the workflows known here."""
        store, known = self._engine.store, self._engine.known_workflows()
        there = {each.workflow for each in await store.subscriptions()}
        for workflow in known.values():
            if workflow.reactions or workflow.name in there:
                await store.subscribe(workflow.name, workflow.reactions)
        return [workflow.name for workflow in known.values() if workflow.reactions]


def effect_of(
    workflow: Workflow[..., Any], reaction: Reaction, message: Message, now: float
) -> NewRun | CancelKey:
    """The run that a message starts, or the key of the one that it cancels."""
    payload = json.loads(message.payload)
    key = value_at(payload, reaction.key) if reaction.key is not None else None
    text = f"event:{message.event_id}" if key is None else _text(key)
    if reaction.action == "cancel":
        return CancelKey(text)
    shaped = workflow.flow.shapes_key
    chosen = workflow.options(key=None if shaped else text, attributes={"event": message.name})
    names = list(inspect.signature(workflow.function).parameters)
    given = [payload] if workflow.flow.batch is not None else payload
    input = json.dumps({names[0]: given} if names else {}).encode()
    try:
        args, kwargs = chosen.signature.decode_arguments(input)
        input = chosen.signature.encode_arguments(args, kwargs)
        lane = chosen.lane(args, kwargs)
    except (HoldfastError, TypeError, ValueError, LookupError, AttributeError) as error:
        # It is started all the same, and fails where everybody can see why.
        log.error("the event %s does not fit %s: %s", message.event_id, workflow.name, error)
        lane = None
    return chosen.new_run(input, lane, now)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
