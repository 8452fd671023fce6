"""The store's contract about events that start and cancel runs.

A workflow listens from one message to the next. What the messages do and how far it has listened
is written in one transaction, on condition that nobody else has listened further meanwhile. So an
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
    """Messages that a workflow has not dealt with."""

    subscription: Subscription
    until: int
    """Up to which message this goes."""
    messages: list[Message]
    """Those that fit one of its reactions, in the order they were sent."""


@dataclass(frozen=True)
class Dealt:
    """What a workflow's messages come to."""

    subscription: Subscription
    until: int
    effects: Sequence[NewRun | CancelKey]
    """In the order of the messages. A run whose key another has already is not started."""
    at: float


class SubscriptionStore(Protocol):
    """What every store does with events that start runs."""

    async def subscribe(self, workflow: str, reactions: Mapping[str, Reaction]) -> Subscription:
        """Have a workflow listen to these events, and no others. Reactions that were declared
        before, in the same words, count since then; the others from the next message on."""
        ...

    async def subscriptions(self) -> list[Subscription]:
        """All of them, by workflow."""
        ...

    async def news(self, workflows: Sequence[str], limit: int) -> list[News]:
        """What the workflows have not dealt with; messages for one run are for nobody else."""
        ...

    async def deal(self, dealt: Dealt) -> bool:
        """Do it, unless somebody else has done it; whether it was done."""
        ...
