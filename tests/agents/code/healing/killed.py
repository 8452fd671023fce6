"""`holdfast`, which kills itself with SIGKILL at a chosen step boundary. Started as a program.

KILL_AT is a moment and a number: `begun 3` as the third step's beginning is on record, `done 3`
when the third step is done and its result not yet on record, `ended 3` when it is. Nothing of
this is in the product.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any

from crash.worker import watch_answers
from holdfast.cli.main import main
from holdfast.records import STEP_COMPLETED, STEP_STARTED, Event
from holdfast.store.sqlite.store import SqliteStore

MOMENTS = ("begun", "done", "ended")


class Death:
    """Comes at the n-th event of a type."""

    def __init__(self, type: str, number: int) -> None:
        self._type, self._left = type, number

    def look(self, events: Iterable[Event]) -> None:
        for event in events:
            self._left -= event.type == self._type
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # the signal is on its way


def die(moment: str, number: int) -> None:
    death = Death(STEP_STARTED if moment == "begun" else STEP_COMPLETED, number)
    if moment != "done":
        watch_answers(lambda append, error: death.look(append.events if error is None else ()))
        return
    append_to = SqliteStore.append

    def append(self: Any, append: Any) -> None:
        death.look(append.events)
        append_to(self, append)

    SqliteStore.append = append  # type: ignore[method-assign]


if __name__ == "__main__":
    moment, number = os.environ["KILL_AT"].split()
    die(moment, int(number))
    sys.exit(main(sys.argv[1:]))
