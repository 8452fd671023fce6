"""Each safeguard, and how to switch it off: so that the checks can be seen to fail.

Called in a worker process of a test, which ends with it.
"""

from __future__ import annotations

from typing import Any


def deliver_before_commit() -> None:
    """Tell a run that its events are safe before they are."""
    import asyncio

    from holdfast.store.base import Append
    from holdfast.store.sqlite.store import SqliteStore

    append_to = SqliteStore.append

    def append(self: Any, append: Append) -> None:
        silent = Append(append.run_id, append.fence, append.events, lambda _append, _error: None)
        append_to(self, silent)
        asyncio.get_running_loop().call_soon(append.done, append, None)

    SqliteStore.append = append


def number_steps_by_call() -> None:
    """Key steps by the order in which they are called, as others do, and deliver in that order."""
    from holdfast.runtime.commands import StepCall
    from holdfast.runtime.replay import Execution

    def next_key(self: Any) -> str:
        self._outside += 1
        return f"0/{self._outside}"

    Execution.next_key = next_key
    StepCall.same_as = lambda _self, _recorded: True
    deliver_out_of_order()


def deliver_out_of_order() -> None:
    """Hand recorded results over by key, not in the order in which they were recorded."""
    from collections import deque

    from holdfast.runtime.history import History

    sort = History.__init__

    def init(self: Any, journal: Any) -> None:
        sort(self, journal)
        self.deliveries = deque(sorted(self.deliveries, key=lambda event: event.key))

    History.__init__ = init


def append_without_fence() -> None:
    """Let whoever asks write at the end of a journal."""
    from holdfast.store.sqlite import journal, projections

    def append(tx: Any, append: Any) -> None:
        sql = "SELECT max(seq) FROM events WHERE run_id = ?"
        last = tx.last_seq.get(append.run_id) or tx.execute(sql, (append.run_id,)).fetchone()[0]
        events = enumerate(append.events, start=1)
        projections.write(tx, [event._replace(seq=last + place) for place, event in events])

    journal.append = append


SWITCHES = {
    "deliver after commit": deliver_before_commit,
    "keys by task, delivery in order": number_steps_by_call,
    "delivery in order": deliver_out_of_order,
    "the fence": append_without_fence,
}
