"""What crosses between the judge and the program as plain data, and by which names.

Numbers, text, bytes, dates, decimals and the like are rebuilt from their parts on the other
side. Containers that can change are twins: see `bridge_peer.py`. Classes, functions and modules
of the standard library are the other side's own of the same name.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import operator
import pathlib
import random
import sys
import types
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

_Chance = random.SystemRandom  # bound here: tests may replace it
Encoded = Any
"""What JSON can hold: a plain value as it is, all else a list that begins with a tag."""

KINDS: dict[str, type[Any]] = {
    "L": list, "D": dict, "S": set, "B": bytearray, "O": collections.OrderedDict,
    "F": collections.defaultdict, "C": collections.Counter, "Q": collections.deque,
}  # fmt: skip
KIND_OF = {kind: tag for tag, kind in KINDS.items()}
BY_TEXT: dict[str, Callable[[str], Any]] = {
    kind.__name__: kind
    for kind in (decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PosixPath,
                 pathlib.PurePosixPath, zoneinfo.ZoneInfo)
}  # fmt: skip
PARTS: dict[type[Any], str] = {
    datetime.datetime: "year month day hour minute second microsecond tzinfo fold",
    datetime.date: "year month day",
    datetime.time: "hour minute second microsecond tzinfo fold",
    datetime.timedelta: "days seconds microseconds",
}
BY_PARTS = {kind.__name__: kind for kind in PARTS}
SINGLES: dict[str, Any] = {"...": Ellipsis, "NI": NotImplemented}

ARITHMETIC = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and",
    "or", "xor", "matmul",
]  # fmt: skip
_OTHERS = [
    "call", "len", "iter", "next", "contains", "getitem", "setitem", "delitem", "missing",
    "reversed", "eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "repr", "format", "bytes",
    "bool", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "neg", "pos",
    "abs", "invert", "enter", "exit", "aenter", "aexit", "await", "aiter", "anext", "fspath",
    "class_getitem", "length_hint", "copy", "deepcopy", "dir", "get", "set", "delete", "set_name",
]  # fmt: skip
BINARY = frozenset(f"__{prefix}{name}__" for name in ARITHMETIC for prefix in ("", "r"))
ORDER = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__gt__", "__ge__": "__lt__"}
"""Each comparison, and one that can't hold beside it."""
SPECIAL = [
    *(f"__{name}__" for name in _OTHERS),
    *(f"__{prefix}{name}__" for name in ARITHMETIC for prefix in ("", "r", "i")),
]
"""The methods that Python looks up on classes: a stand-in's class has those of the original's."""
DATA: tuple[type[Any], ...] = (
    bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset,
    collections.deque,
)  # fmt: skip
FIXED: tuple[type[Any], ...] = (int, float, complex, str, bytes, tuple)
"""Data that never changes: an object of a class that derives from one is that data here, too."""
PLAIN: tuple[type[Any], ...] = (
    type(None), *DATA, range, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.timedelta, uuid.UUID, pathlib.PurePath,
)  # fmt: skip
HIDDEN: dict[str, type[Any]] = {
    "generator": types.GeneratorType, "coroutine": types.CoroutineType,
    "async_generator": types.AsyncGeneratorType, "function": types.FunctionType,
    "builtin_function_or_method": types.BuiltinFunctionType, "method": types.MethodType,
    "module": types.ModuleType, "mappingproxy": types.MappingProxyType,
    "dict_keys": type({}.keys()), "dict_values": type({}.values()), "dict_items": type({}.items()),
}  # fmt: skip
"""Classes that no module holds under their name."""
SURPRISES = ("this", "antigravity", "__main__", "test", "idlelib", "turtledemo")
"""Modules that do something when they are loaded."""
ORIGIN = "__raised_there__"
"""Where an error of the judge's that is passed on keeps its number."""
NEVER = (types.FrameType, types.TracebackType, types.CodeType)
"""By these a program could look around in the judge."""
CONTROL = frozenset({"SkipTest", "Skipped", "XFailed", "Exit", "Failed", "_ShouldStop", "BdbQuit"})
"""How pytest and unittest are told to leave a test out: for tests to raise, not for programs."""


def named(x: Any) -> tuple[str, str] | None:
    """The module and the name by which something of the standard library is found."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)) or not is_standard(module):
        return None
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return (module, name) if found is x else None


def is_standard(module: str) -> bool:
    """Whether a module is the standard library's."""
    return module.partition(".")[0] in sys.stdlib_module_names


def data_of(x: Any, base: Any) -> Any:
    """The data that an object is by its base class, whatever its own class makes of it."""
    if issubclass(base, dict):
        return dict(dict.items(x))
    if base in (int, bool, float, complex):
        zero: Any = base(0)
        return base.__add__(x, zero)
    if base in (str, bytes, bytearray):
        return base.__getitem__(x, slice(None))
    return base(base.__iter__(x))


def flat(x: Any) -> Any:
    """What a container holds, in its order, to see later whether that has changed."""
    if type(x) is bytearray:
        return bytes(x)
    return [*x.keys(), *x.values()] if isinstance(x, dict) else list(x)


def unchanged(x: Any, old: Any) -> bool:
    """Whether a container holds the same objects that it held."""
    if type(x) is bytearray:
        return bool(x == old)
    if not isinstance(x, dict):
        return len(x) == len(old) and all(map(operator.is_, x, old))
    many = len(x)
    if 2 * many != len(old) or not all(map(operator.is_, x.keys(), old)):
        return False
    return all(map(operator.is_, x.values(), old[many:]))


def decoys(x: Any) -> tuple[list[Any], list[Any]]:
    """Values that are not `x`: some like it, and some of its kind that have nothing to do with it.

    A program that is asked whether it equals `x` is asked about these as well, in any order.
    """
    chance = _Chance()
    word, number = chance.randbytes(8).hex(), chance.randrange(10**6, 10**12)
    if type(x) in (int, float) and abs(x) < 1e15:
        first = x - chance.randrange(12)  # it may be anywhere among its neighbours
        return [each for each in (first + n for n in range(12)) if each != x], [number, -number]
    if type(x) is bool:
        return [not x], [number, word]
    if type(x) is str:
        near = [x[::-1], x.swapcase(), x + x[-1:], x[1:], x[:-1], f" {x}"]
        return [each for each in near if each != x], [word, word[:5]]
    if type(x) in (list, tuple):
        kind: Any = type(x)
        near = [x[::-1], x[1:], x[:-1], x + x[-1:]]
        return [each for each in near if each != x], [kind([word]), kind([number])]
    if type(x) is dict:
        return [{**x, word: number}], [{word: number}]
    return [word], [number, word.encode()]
