"""Tracebacks across the bridge: an error of the program is shown where the program raised it.

A frame can't cross. Its file, line and name do, and the judge makes a frame of its own that says
the same, so that pytest prints what it prints when there is one process.
"""

from __future__ import annotations

import ast
import itertools
import os
import types
from collections.abc import Sequence
from typing import Any

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
