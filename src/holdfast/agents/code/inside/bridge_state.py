"""What both sides of the bridge remember: what was lent, what was borrowed, and the twins."""

from __future__ import annotations

import asyncio
import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from holdfast.agents.code.inside.bridge_values import Encoded


class CannotCross(BaseException):
    """What the tests do needs one interpreter."""


class Ended(BaseException):
    """The other side is no more."""


class State:
    """The state of a side, and what its parts ask of one another."""

    """One side of the conversation."""

    def __init__(self, reader: BinaryIO, writer: int, *, judge: bool) -> None:
        self.judge = judge
        self._reader, self._writer = reader, writer
        self._writing, self._owner = threading.Lock(), threading.get_ident()
        self._lent: dict[int, Any] = {}
        self._lent_ids: dict[int, int] = {}
        self._lent_often: collections.Counter[int] = collections.Counter()
        self._borrowed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._held: dict[int, Any] = {}
        """What was borrowed and can't be referred to weakly: ints, tuples and bytes of a class."""
        self._borrowed_often: collections.Counter[int] = collections.Counter()
        self._returned: list[list[int]] = []
        self.classes: dict[int, Any] = {}
        """Stand-ins for classes, by the other side's number."""
        self._described: dict[Any, int] = {}
        self._local: dict[Any, int] = {}
        """Enums and named tuples made here from the other side's, and their numbers there."""
        self._twins: dict[int, list[Any]] = {}
        self._twin_ids: dict[int, int] = {}
        self._gone: list[int] = []
        self._number = 2 if judge else 1
        self._frozen = False
        self._tasks: dict[int, tuple[asyncio.Task[Any], asyncio.AbstractEventLoop, Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.events: list[list[Any]] = []
        """What goes along with the next frame: printed text, the environment."""
        self.on_event: Callable[[str, Any], None] = lambda kind, value: None
        self.before: Callable[[], None] = lambda: None
        self.lies: list[str] = []
        self.asked = 0

    def enc(self, x: Any) -> Encoded:
        raise NotImplementedError

    def dec(self, x: Encoded) -> Any:
        raise NotImplementedError

    def request(self, op: str, *args: Any, kw: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError

    def compare(self, a: Any, name: str, b: Any) -> Any:
        raise NotImplementedError

    def arithmetic(self, a: Any, name: str, *others: Any) -> Any:
        raise NotImplementedError

    def cannot(self, why: str) -> NoReturn:
        """Give up: what the tests do needs one interpreter."""
        raise CannotCross(why)

    def next_number(self) -> int:
        self._number += 2
        return self._number

    def lend(self, x: Any) -> int:
        """A number for an object of ours, by which the other side may ask about it."""
        hid = self._lent_ids.get(id(x))
        if hid is None:
            hid = self.next_number()
            self._lent[hid], self._lent_ids[id(x)] = x, hid
        self._lent_often[hid] += 1
        return hid

    def lie(self, a: Any, what: str) -> NoReturn:
        """An object claims what no honest one can: on record, whatever the test makes of it."""
        __tracebackhide__ = True
        self.lies.append(f"{type(a).__name__} {what}")
        raise AssertionError(self.lies[-1])
