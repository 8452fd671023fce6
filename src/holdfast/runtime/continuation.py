"""Going on as a new run: for workflows that never end, whose journal must not grow for ever."""

from __future__ import annotations

from typing import Any, NoReturn

from holdfast.runtime.context import required


class ContinueAsNew(BaseException):
    """Ends a body that goes on as a new run; raised by `continue_as_new`.

    No error: `except Exception` must not catch it.
    """

    def __init__(self, input: bytes) -> None:
        super().__init__("the run goes on as a new one")
        self.input = input


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and go on as a new one of the same workflow, with these arguments.

    The new run has this one's key, parent, attributes, limits and place under them, the events
    it has not taken and the values it has published; its journal is empty. Who waits for the
    result waits for that of the last run. `finally` blocks run first; children that are still
    waited for are cancelled.

    >>> continue_as_new(cursor=cursor)
    """
    body = required("continue_as_new")
    raise ContinueAsNew(body.workflow.signature.encode_arguments(args, kwargs, body.max_payload))
