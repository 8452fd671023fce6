"""Reading JSON from strangers: exactly what the standard allows, and not too deep.

Python's own reader takes NaN, overflows to infinity, keeps half characters and the last of two
equal names. Each of these would surface later, somewhere else: here they are refused at the door.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import UsageError

MAX_DEPTH = 100
# A string that is never closed matches as well: looking for its end from every quote would take
# the square of the body's length.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


class BadBody(HTTPException):
    """What FastAPI lets pass on its way out; carries our error."""

    def __init__(self, error: UsageError) -> None:
        super().__init__(error.http_status, error.message)
        self.error = error


def parse(body: bytes) -> Any:
    """A JSON value; raises UsageError for anything else."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the body is no UTF-8: byte {error.start} can't be read") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        value = json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repetition,
        )
        # Half of a surrogate pair (\ud800) is no character.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            "the body holds half of a surrogate pair, which is no character"
        ) from error
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    return value


def _check_depth(text: str) -> None:
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise UsageError(f"the body is nested more than {MAX_DEPTH} deep")
        elif first in "]}":
            depth -= 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not part of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{twice[:50]!r} is there twice")
    return found


class StrictRequest(Request):
    """A request whose JSON is read as above."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                self._json = parse(await self.body())
            except UsageError as error:
                raise BadBody(error) from error
        return self._json


class StrictRoute(APIRoute):
    """A route whose body is read as above."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strictly
