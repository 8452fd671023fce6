"""The store's contract about events that start and cancel runs.

Who sends a message leaves it, in the same transaction, for the workflows that listen to it. What it
comes to is done in the transaction that takes it away, by one at a time for each workflow. So an
event starts its run once, however many processes listen and wherever they die, and events take
effect in the order they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.records import Message
from holdfast.records.subscriptions import Reaction, Subscription

if TYPE_CHECKING:
    from holdfast.store.base import NewRun


class CancelKey(NamedTuple):
    """The run of the workflow that has this key is cancelled, if it has not ended."""

    key: str


class News(NamedTuple):
    """Messages that a workflow has not dealt with, in the order they were sent."""

    subscription: Subscription
    messages: list[Message]


@dataclass(frozen=True)
class Dealt:
    """What a workflow's messages come to."""

    workflow: str
    effects: Sequence[tuple[int, NewRun | CancelKey]]
    """By the message's id, in their order. A run whose key another has already is not started."""
    at: float


class SubscriptionStore(Protocol):
    """What every store does with events that start runs."""

    async def subscribe(self, workflow: str, reactions: Mapping[str, Reaction]) -> None:
        """Have a workflow listen to these events, and no others, from the next message on."""
        ...

    async def subscriptions(self) -> list[Subscription]:
        """All of them, by workflow."""
        ...

    async def news(self, workflows: Sequence[str], limit: int) -> list[News]:
        """What the workflows have not dealt with; messages for one run are for nobody else."""
        ...

    async def deal(self, dealt: Dealt) -> int:
        """Do what nobody else has done; how many messages that was."""
        ...
