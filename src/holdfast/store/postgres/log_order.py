"""The order of events over all runs, with many who write at once.

A number drawn from a sequence is no place in a log: who draws the lower one may commit later, and
a reader that has gone past it misses the event for good. So an event's place is the number of its
transaction, and its place in that. Readers stop below the oldest transaction that is still under
way: nothing can come in behind them any more.

A database that was dumped and restored counts its transactions from the beginning. `txid_base` is
added to them, and set when a store is opened so that places go on from where they were.
"""

from __future__ import annotations

from typing import Final

BITS: Final = 20
"""Of a place, for the events of one transaction. The rest leaves room for 2^33 transactions in
what JavaScript takes for a whole number."""

SETTLED: Final = f"""(SELECT (txid_base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
  << {BITS} FROM identity)"""  # noqa: S608
"""Below this place nothing comes any more."""
END: Final = f"SELECT coalesce(max(log), 0) FROM events WHERE log < {SETTLED}"  # noqa: S608
BEHIND: Final = f"SELECT EXISTS (SELECT 1 FROM events WHERE log >= {SETTLED})"  # noqa: S608
"""Whether events are committed that readers can't be given yet."""
REBASE: Final = f"""
UPDATE identity
SET txid_base = last.txid + 1 - pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM (SELECT coalesce(max(log), 0) >> {BITS} AS txid FROM events) last
WHERE txid_base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= last.txid
"""  # noqa: S608
"""While nobody writes: go on behind the last event, where transactions are counted anew."""
NUMBER: Final = "SELECT pg_current_xact_id()::text::bigint, txid_base FROM identity"
