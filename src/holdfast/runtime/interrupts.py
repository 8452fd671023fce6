"""Whether a KeyboardInterrupt is Ctrl-C, or was raised by code as any other exception.

`sys.exit()`, `raise KeyboardInterrupt` and their like in a workflow or a step end that run or
attempt, never the worker. A real Ctrl-C must still stop the worker, wherever it strikes: also
in the middle of a body, where Python then raises KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio.runners
import dis
import signal
import threading
from types import TracebackType


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the error was raised by a signal's handler, and not by a `raise`."""
    if not issubclass(type(error), KeyboardInterrupt):
        return False
    if threading.current_thread() is not threading.main_thread():
        return False  # Python runs the handlers of signals in the main thread alone
    last = _innermost(error.__traceback__)
    if last is None:
        return False
    if last.tb_frame.f_code.co_filename == asyncio.runners.__file__:
        return True  # asyncio.run's own handler: the second Ctrl-C
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Python's default handler is written in C and leaves no frame: the innermost one is the code
    # that was interrupted, at any instruction but a `raise`.
    return usual and not _is_at_raise(last)


def _innermost(found: TracebackType | None) -> TracebackType | None:
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    return found


def _is_at_raise(place: TracebackType) -> bool:
    code = place.tb_frame.f_code.co_code
    return dis.opname[code[place.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
