"""What a workflow asks for: each kind of command, and how it reads in the journal.

A command is opened by one event and closed by another. The opening event says what was asked
(`name`, facts, payload); on replay that is compared with what the code asks for now.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from holdfast.records import (
    CHILD_STARTED,
    STEP_STARTED,
    TIMER_SET,
    WAIT_CREATED,
    WEBHOOK_CREATED,
    Event,
)
from holdfast.runtime.loop import WorkflowTimer

if TYPE_CHECKING:
    from holdfast.runtime.codec import Codec
    from holdfast.runtime.definitions import Step


class CommandFuture(asyncio.Future[Any]):
    """What a command's coroutine awaits; tells when the body no longer wants it."""

    __slots__ = ("_command", "on_cancel")

    def __init__(
        self,
        command: Command,
        on_cancel: Callable[[Command], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._command = command
        self.on_cancel: Callable[[Command], None] | None = on_cancel

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.on_cancel is not None:
            self.on_cancel(self._command)
        return cancelled


@dataclass(slots=True, eq=False)
class Command:
    """Something a workflow asked for, at `key`."""

    key: str
    name: str
    type: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    value: bytes | None = None
    future: CommandFuture | None = None
    opened: Event | None = None
    """The event that opened it, once there is one."""

    def meta(self) -> str:
        return json.dumps({"name": self.name, **self.facts})

    def describe(self) -> str:
        """For the message that shows recorded and called side by side."""
        return describe(self.type, self.name, self.value)

    def same_as(self, recorded: Event) -> bool:
        """Whether a recorded event is this command's."""
        if recorded.type != self.type or recorded.facts.get("name") != self.name:
            return False
        return same_json(self.value, recorded.value)


class StepCall(Command):
    # By hand: there is one for every step, and a dataclass of defaults takes twice as long.
    __slots__ = ("args", "branch", "step")

    def __init__(
        self,
        key: str,
        step: Step[..., Any],
        value: bytes,
        args: tuple[Any, ...] | None,
        branch: str = "",
    ) -> None:
        self.key = key
        self.name = step.name
        self.type = STEP_STARTED
        self.facts = {}
        self.value = value
        self.future = None
        self.opened = None
        self.step = step
        self.args = args
        """The arguments, if they are just what decoding `value` would give."""
        self.branch = branch
        """The branch of the body that asks for it (see `WorkflowTask.branch`)."""

    def meta(self) -> str:
        if not self.branch:
            return self.step.meta
        return f'{self.step.meta[:-1]}, "branch": {json.dumps(self.branch)}}}'

    def same_as(self, recorded: Event) -> bool:
        if recorded.type != self.type or recorded.facts.get("name") != self.name:
            return False
        unordered = self.step.signature.has_sets
        return same_json(self.value, recorded.value, unordered=unordered)


@dataclass(slots=True, eq=False)
class Timer(Command):
    when: float = 0.0
    handle: WorkflowTimer | None = None
    type: str = TIMER_SET


@dataclass(slots=True, eq=False)
class Wait(Command):
    match: dict[str, Any] = field(default_factory=dict[str, Any])
    where: Callable[[Any], bool] | None = None
    deadline: float | None = None
    """None only for the wait for another run's end, or for its answer."""
    type: str = WAIT_CREATED

    def same_as(self, recorded: Event) -> bool:
        facts = recorded.facts
        return recorded.type == self.type and (facts["name"], facts["match"]) == (
            self.name,
            self.match,
        )


@dataclass(slots=True, eq=False)
class Child(Command):
    result: Codec | None = None
    type: str = CHILD_STARTED


@dataclass(slots=True, eq=False)
class Webhook(Command):
    type: str = WEBHOOK_CREATED


def describe(type: str, name: str, value: bytes | None) -> str:
    """A command in words: `step charge({"amount": 5})`."""
    text = (value or b"").decode()
    shown = text if len(text) <= 200 else text[:199] + "…"
    return f"{type.partition('.')[0]} {name}({shown})"


def same_json(one: bytes | None, other: bytes | None, *, unordered: bool = False) -> bool:
    """Whether two payloads say the same; the order of an object's fields does not matter.

    `unordered`: nor does the order of lists, for some of them were sets.
    """
    if one == other:
        return True
    if one is None or other is None:
        return False
    ours, theirs = json.loads(one), json.loads(other)
    return _sorted(ours) == _sorted(theirs) if unordered else ours == theirs


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return {name: _sorted(part) for name, part in items.items()}
    if isinstance(value, list):
        parts = [_sorted(part) for part in cast("list[Any]", value)]
        return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))
    return value
