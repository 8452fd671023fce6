"""The calls that tests make of a program, or its answers to calls. Copied into a sandbox.

Reads {"tests"} or {"calls"} from stdin; the program is solution.py in this folder. With tests: runs
them, and prints the calls that they make of its functions with plain arguments. With calls: makes
them, and prints what came of each. A value is told by its literal. The last line printed is JSON.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib
import inspect
import itertools
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

from holdfast.agents.code.inside.run_python import TESTS, pytest_options

MOST_CALLS = 300
MOST_ITEMS = 1000
SECONDS = 2
"""For one call."""


def main() -> None:
    given = json.loads(sys.stdin.readline())
    sys.dont_write_bytecode = True
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.path.append(os.getcwd())
    program = importlib.import_module("solution")
    found = _recorded(program) if "tests" in given else _answers(program, given["calls"])
    os.write(out, f"{json.dumps(found)}\n".encode())
    os._exit(0)


def _functions(program: ModuleType) -> dict[str, Callable[..., Any]]:
    held: dict[str, Any] = vars(program)
    return {
        name: value
        for name, value in held.items()
        if inspect.isfunction(value) and value.__module__ == "solution" and name[0] != "_"
    }


# --- the calls of the tests ---


def _recorded(program: ModuleType) -> list[list[str]]:
    import pytest

    calls: list[list[str]] = []
    for name, function in _functions(program).items():
        setattr(program, name, _recording(name, function, calls))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    pytest.main([*pytest_options(os.getcwd()), "--tb=no"])
    if not calls:  # a script
        try:
            runpy.run_path(TESTS, run_name="__main__")
        except BaseException:  # noqa: S110 - what was called until then counts
            pass
    return calls


def _recording(name: str, function: Callable[..., Any], calls: list[list[str]]) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kw: Any) -> Any:
        if len(calls) < MOST_CALLS:
            told = _literal([list(args), kw])
            if told is not None and [name, told] not in calls:
                calls.append([name, told])
        return function(*args, **kw)

    return wrapper


def _literal(value: Any) -> str | None:
    """A value as text that means the same anywhere; None if it is no plain data."""
    text = repr(value)
    try:
        return text if len(text) < 4000 and repr(ast.literal_eval(text)) == text else None
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


# --- what a program answers ---


class _TooLong(BaseException):
    pass


def _late(*_: Any) -> None:
    raise _TooLong


def _answers(program: ModuleType, calls: list[list[str]]) -> list[list[str] | None]:
    signal.signal(signal.SIGALRM, _late)
    functions = _functions(program)
    found: list[list[str] | None] = []
    for name, told in calls:
        args, kw = ast.literal_eval(told)
        if name not in functions:
            found.append(["missing", name])
            continue
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            found.append(_told(functions[name](*args, **kw)))
        except _TooLong:
            found.append(None)
        except BaseException as error:  # the program may raise anything
            found.append(["raises", type(error).__name__])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def _told(value: Any) -> list[str] | None:
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    if hasattr(value, "__next__") or isinstance(value, range):
        value = list(itertools.islice(value, MOST_ITEMS))
    text = _literal(_rounded(value))
    return None if text is None else ["returns", text]


def _rounded(value: Any) -> Any:
    """Floats that differ by how they were worked out are the same."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if type(value) in (list, tuple):
        return type(value)(_rounded(each) for each in value)
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=repr)
    if isinstance(value, dict):
        held = cast("dict[Any, Any]", value)
        return {key: _rounded(held[key]) for key in sorted(held, key=repr)}
    return value


if __name__ == "__main__":
    main()
