"""What both sides of the bridge remember: what was lent, what was borrowed, and the twins.

And tracebacks across it. A frame can't cross: its file, line and name do, and the judge makes a
frame of its own that says the same, so that pytest prints what it prints when there is one process.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import itertools
import os
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NoReturn

from holdfast.agents.code.inside.bridge_values import Encoded


class CannotCross(BaseException):
    """What the tests do needs one interpreter."""


class Ended(BaseException):
    """The other side is no more."""


class State:
    """The state of one side of the conversation, and what its parts ask of one another."""

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


# --- tracebacks ---


Place = list[Any]
"""The file of a frame, its line, the first line and the name of its function, and its columns."""
_MOST = 60
_HERE = f"{os.getcwd()}/"
_OURS = ("/holdfast/agents/code/inside/", "<frozen importlib", "/importlib/__init__.py")


def described(error: BaseException) -> list[Place]:
    """Where an error came from, outermost first, without our own frames."""
    places: list[Place] = []
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        ours = any(each in code.co_filename for each in _OURS)
        if not ours and not at.tb_frame.f_locals.get("__tracebackhide__"):
            steps = itertools.islice(code.co_positions(), at.tb_lasti // 2, None)
            _, *columns = next(steps, (None, None, None, None))
            # pytest shows a path as relative only if there is such a file.
            file, first = code.co_filename.removeprefix(_HERE), code.co_firstlineno
            places.append([file, at.tb_lineno, first, code.co_name, *columns])
        at = at.tb_next
    return places if len(places) <= _MOST else [*places[: _MOST // 2], *places[-_MOST // 2 :]]


def rebuilt(
    places: Sequence[Place], inner: types.TracebackType | None = None
) -> types.TracebackType | None:
    """A traceback of our own with these frames, and those of `inner` below them."""
    made = inner
    for place in reversed(places):
        frame = _frame(*place)
        made = types.TracebackType(made, frame, frame.f_lasti, int(place[1]))
    return made


def _frame(
    file: str, line: int, first: int, name: str, end: int | None, column: int, end_column: int
) -> types.FrameType:
    first = min(first, line)
    [raised] = ast.parse("raise LookupError").body
    shift = first - 1  # what the code's first line adds to all others
    for node in ast.walk(raised):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno, node.end_lineno = line - shift, max(end or line, line) - shift
            node.col_offset, node.end_col_offset = max(column or 0, 0), max(end_column or 0, 0)
    code = compile(ast.Module([raised], []), file, "exec", dont_inherit=True)
    try:
        exec(code.replace(co_name=name, co_firstlineno=first), {"__name__": "solution"})  # noqa: S102
    except LookupError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")
