"""What the instrumented tests tell while they run: when they were left, what they asserted."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any

NAME = f"__watch_{secrets.token_hex(8)}__"
"""What tests know it by: a name nobody can know before the run."""
SCRIPT = "script"
"""Stands for tests that are in no function."""
__unittest = True  # and pytest leaves our frames out of what it shows

_gettrace, _exception = sys.gettrace, sys.exception
_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]
_METHODS = {"!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
_HERE = f"{os.getcwd()}/"
_INSTALLED = {os.path.dirname(os.__file__), *sys.path} - {""}
_KNOWN = tuple(f"{path}/" for path in _INSTALLED if not _HERE.startswith(f"{path.rstrip('/')}/"))
"""Where nothing is the program's: what is installed, and not the folder it lies in."""
_EXAMPLES: list[object] = [object.__eq__, "".join, str.join, len]
_NATIVE = tuple(type(each) for each in _EXAMPLES)
_PLAIN = (int, str, float, bool, bytes, complex, type(None), type, range, slice)
_HOLDERS = (list, tuple, set, frozenset)
_MOST_ITEMS = 10_000
_EQUAL = frozenset(
    f"assert{kind}"
    for kind in ("Equal", "ListEqual", "DictEqual", "TupleEqual", "SetEqual", "CountEqual",
                 "SequenceEqual", "MultiLineEqual", "AlmostEqual")
)  # fmt: skip
_OF_METHODS = {
    "assertNotEqual": "!=",
    "assertLess": "<",
    "assertLessEqual": "<=",
    "assertGreater": ">",
    "assertGreaterEqual": ">=",
    "assertIn": "in",
}
_INVERSE: dict[str, Callable[[Any, Any], Any]] = {
    "!=": lambda left, right: left == right,
    "<": lambda left, right: left >= right,
    "<=": lambda left, right: left > right,
    ">": lambda left, right: left <= right,
    ">=": lambda left, right: left < right,
}


_CONTROL = ("Skipped", "SkipTest", "XFailed", "Exit")
"""How pytest and unittest are told to leave a test out: for tests to raise, not for programs."""


class Watch:
    """Told by the tests what happens in them."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._open = [SCRIPT]
        self._failing: list[tuple[str, int]] = []
        self.ended: set[str] = set()
        """Tests that were left by a `return`, or at their end."""
        self.stopped: dict[str, str] = {}
        """Tests that the program left by what only tests may raise, and what that was."""
        self.failed: set[str] = set()
        self.asserts = 0

    def enter(self, name: str) -> None:
        self._open.append(name)

    def leave(self) -> None:
        if len(self._open) > 1:
            self._open.pop()

    def returned(self, name: str) -> None:
        self.ended.add(name)

    def fail(self, name: str) -> None:
        """A test is left by an error, which is being handled."""
        self.failed.add(name)
        error = _exception()
        if error is None or type(error).__name__ not in _CONTROL:
            return
        if _came_from(error, "solution.py"):
            self.stopped.setdefault(name, f"{type(error).__name__}: {error}")

    def fails(self, line: int) -> None:
        """An assertion is about to fail."""
        if _called_by("solution.py"):
            self._failing.append((self._open[-1], line))

    def swallowed(self) -> Iterator[tuple[str, str, str]]:
        """Assertions that failed under the program, in tests that went on all the same.

        Those that the tests themselves catch are their own affair.
        """
        for name, line in self._failing:
            if name not in self.failed:
                source = self._lines[line - 1].strip()
                told = f"an assertion failed, and the program went on: {source}"
                yield name, told, f"test_solution.py:{line}: {told}"

    def count(self) -> None:
        """An assertion held."""
        __tracebackhide__ = True  # pytest leaves this frame out
        self.asserts += 1
        if traced():
            raise AssertionError("the program traces its tests")

    def compared(self, operator: str, left: object, right: object) -> None:
        """After `assert left == right` held: neither may be equal to just anything."""
        __tracebackhide__ = True
        self.count()
        if operator == "==":
            for one in (left, right):
                if (liar := _equal_to_anything(one, [_MOST_ITEMS])) is not None:
                    raise AssertionError(f"{liar} claims to be equal to anything")
        elif operator == "in":
            if _defined_by_program(right, "__contains__") and _holds(right, object()):
                raise AssertionError(f"{type(right).__name__} claims to hold anything")
        elif _compared_by_program(operator, left, right) and _both(operator, left, right):
            names = f"{type(left).__name__} and {type(right).__name__}"
            raise AssertionError(f"{names} claim to be {operator} one another, and not to be")

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A method of unittest's, or pytest.raises: made, and its arguments looked at."""
        __tracebackhide__ = True
        result = function(*args, **kwargs)
        operator = "==" if name in _EQUAL else _OF_METHODS.get(name)
        if operator is not None and len(args) >= 2:
            self.compared(operator, args[0], args[1])
        else:
            self.count()
        return result


def traced() -> bool:
    """Whether the program traces what is running; that others do (hypothesis) is fine."""
    function = _gettrace()
    return function is not None and _by_program(function)


def _by_program(function: Any) -> bool:
    """Whether a function is the program's: neither the tests' own nor of anything installed."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return not isinstance(function, _NATIVE)
    file = str(code.co_filename)
    return not (file.startswith((*_KNOWN, "<frozen")) or file.endswith("/test_solution.py"))


def _defined_by_program(value: object, method: str) -> bool:
    for kind in type(value).__mro__:
        if method in vars(kind):
            return _by_program(vars(kind)[method])
    return False


def _compared_by_program(operator: str, left: object, right: object) -> bool:
    method = _METHODS.get(operator)
    return method is not None and any(
        _defined_by_program(one, each) for one in (left, right) for each in (method, "__eq__")
    )


def _came_from(error: BaseException, file: str) -> bool:
    """Whether a file's code had a part in an error."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename.endswith(f"/{file}"):
            return True
        place = place.tb_next
    return False


def _called_by(file: str) -> bool:
    """Whether a file's code is between the test and what is running now."""
    frame = _getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(f"/{file}"):
            return True
        frame = frame.f_back
    return False


def _equal_to_anything(value: object, room: list[int]) -> str | None:
    """The name of the first type in a value whose objects are equal to whatever they meet."""
    kind = type(value)
    room[0] -= 1
    if kind in _PLAIN or room[0] < 0:
        return None
    if kind in _HOLDERS or kind is dict:
        parts: Any = value
        inner = [*parts, *parts.values()] if kind is dict else parts
        return next((f for each in inner if (f := _equal_to_anything(each, room))), None)
    if not _defined_by_program(value, "__eq__"):
        return None
    token = secrets.token_hex(16)
    number = secrets.randbits(60) + 1000
    strangers: list[Any] = [
        object(), token, number, number / 7, token.encode(), [token], (token, number), {token},
        {token: number},
    ]  # fmt: skip
    if any(_true(_same, value, stranger) for stranger in strangers):
        return kind.__name__
    both = _true(_same, value, True) and _true(_same, value, False)
    return kind.__name__ if both else None


def _same(left: Any, right: Any) -> Any:
    return left == right


def _both(operator: str, left: Any, right: Any) -> bool:
    """Whether the opposite of what held holds too."""
    return operator in _INVERSE and _true(_INVERSE[operator], left, right)


def _holds(holder: Any, value: object) -> bool:
    return _true(lambda left, right: right in left, holder, value)


def _true(claim: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    try:
        return bool(claim(left, right))
    except Exception:  # they can't be compared: that is no cheating
        return False
