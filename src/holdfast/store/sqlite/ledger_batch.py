"""The model calls of a batch, where it pays to look up for all of them what each would ask.

On a server every question takes a trip there and back. The calls that begin and end in a batch are
looked up together (are their keys taken, what do they hold, is anything limited?) and written
together at the end. Whatever is not that simple (a key that is known, a limit, a hold that changed)
is left to the ledger, which asks one question after the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.records.calls import CallEnd, CallStart
from holdfast.store.sqlite import ledger_rows, ledger_spend
from holdfast.store.sqlite.database import Apart, Transaction
from holdfast.store.sqlite.ledger_rows import Hold

TAKEN = """
SELECT key FROM calls WHERE key IN (SELECT value FROM json_each(?))
  AND status IN ('started', 'completed', 'unknown')
"""
HELD = """
SELECT id, held_usd, held_tokens FROM calls
WHERE id IN (SELECT value FROM json_each(?)) AND status = 'started'
"""
LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class OfCalls(Apart):
    """An operation of the ledger, with what to look up for it."""

    key: str | None = None
    """Of a call that begins."""
    ending: str | None = None
    """The id of a call that ends."""


class CallsAhead:
    """What the calls of a batch that are still to come ask about."""

    def __init__(self, tx: Transaction) -> None:
        batch = [each for each in tx.operations[tx.place :] if isinstance(each, OfCalls)]
        keys = sorted({each.key for each in batch if each.key is not None})
        ending = sorted({each.ending for each in batch if each.ending is not None})
        self.simple = ledger_spend.in_use(tx.connection) == (False, False)
        self.taken: set[str] = set()
        if keys:
            self.taken = {str(row[0]) for row in tx.execute(TAKEN, (json.dumps(keys),))}
        self.held: dict[str, tuple[int, int]] = {}
        if ending:
            rows = tx.execute(HELD, (json.dumps(ending),))
            self.held = {str(id): (usd, tokens) for id, usd, tokens in rows}


def _ahead(tx: Transaction) -> CallsAhead | None:
    if not tx.gathers:
        return None
    if tx.calls is None:
        tx.flush()
        tx.calls = CallsAhead(tx)
    return tx.calls


def begin(
    tx: Transaction, start: CallStart, owner: str, scopes: Sequence[str], usd: int, tokens: int
) -> bool:
    """Record a call as started, with what it holds; False: it is for the ledger to see to."""
    ahead = _ahead(tx)
    if ahead is None or not ahead.simple or start.key in ahead.taken:
        return False
    values = ledger_rows.inserted(start, owner, scopes=scopes, usd=usd, tokens=tokens)
    if not _is_storable(values):
        return False
    if start.key is not None:
        ahead.taken.add(start.key)
    tx.later(ledger_rows.INSERT, values)
    for scope in scopes:
        tx.later(ledger_spend.HOLD, (scope, usd, tokens))
    return True


def finish(tx: Transaction, call_id: str, end: CallEnd, held: Hold, replays_for: float) -> bool:
    """Record how a call ended, and settle its hold; False: it is for the ledger to see to."""
    ahead = _ahead(tx)
    if ahead is None or ahead.held.get(call_id) != (held.usd, held.tokens):
        return False
    values = ledger_rows.finished(call_id, end, held)
    if not _is_storable(values):
        return False
    del ahead.held[call_id]
    tx.later(ledger_rows.FINISH, values)
    if end.replay is not None:
        kept = (call_id, end.replay, end.finished_at + replays_for)
        tx.later(ledger_rows.KEEP_REPLAY, kept)
    for scope in held.scopes:
        spent = (held.usd, held.tokens, end.charge, end.charge_tokens, scope)
        tx.later(ledger_spend.SETTLE, spent)
    return True


def _is_storable(values: Sequence[Any]) -> bool:
    """Whether a store takes these as they are."""
    for value in values:
        if isinstance(value, int) and not -LARGEST <= value < LARGEST:
            return False
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return False
    return True
