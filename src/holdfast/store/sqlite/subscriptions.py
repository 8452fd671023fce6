"""Events that start and cancel runs, in SQLite: see the contract in `store/subscriptions.py`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

from holdfast.errors import TooManyRequests
from holdfast.records import Message
from holdfast.records.subscriptions import Reaction, Subscription
from holdfast.store.base import NewRun
from holdfast.store.connection import Connection
from holdfast.store.sqlite import admission, creation, gathering, projections, queries
from holdfast.store.sqlite.database import Transaction
from holdfast.store.subscriptions import Dealt, News

log = logging.getLogger("holdfast")

LIST = "SELECT workflow, event, action, match, key FROM subscriptions"
PUT = """
INSERT INTO subscriptions (workflow, event, action, match, key, dealt) VALUES (?, ?, ?, ?, ?, 0)
ON CONFLICT (workflow, event) DO UPDATE SET action = excluded.action, match = excluded.match,
  key = excluded.key
"""
NEWS = """
SELECT m.id, m.event_id, m.name, m.run_id, m.payload, m.at
FROM subscription_news n JOIN messages m ON m.id = n.message
WHERE n.workflow = ? ORDER BY m.id LIMIT ?
"""
DROP = """
DELETE FROM subscription_news WHERE workflow = ? AND message IN
  (SELECT id FROM messages WHERE name = ?)
"""
TAKE = "DELETE FROM subscription_news WHERE workflow = ? AND message = ?"
# Where several may write at once, the next waits here until this one has committed.
ALONE = "UPDATE subscriptions SET dealt = dealt + 1 WHERE workflow = ?"
UNENDED = """
SELECT id FROM runs WHERE workflow = ? AND key = ? AND continued_as IS NULL AND finished_at IS NULL
"""


def subscribe(tx: Transaction, workflow: str, reactions: Mapping[str, Reaction]) -> None:
    sql = "SELECT event FROM subscriptions WHERE workflow = ?"
    for (name,) in tx.execute(sql, (workflow,)).fetchall():
        if name not in reactions:
            tx.execute(DROP, (workflow, name))
            tx.execute(
                "DELETE FROM subscriptions WHERE workflow = ? AND event = ?", (workflow, name)
            )
    for name, reaction in reactions.items():
        wanted = json.dumps(dict(reaction.match))
        tx.execute(PUT, (workflow, name, reaction.action, wanted, reaction.key))


def subscriptions(connection: Connection) -> list[Subscription]:
    found: dict[str, dict[str, Reaction]] = {}
    rows = connection.execute(f"{LIST} ORDER BY workflow, event")
    for workflow, event, action, match, key in rows:
        found.setdefault(workflow, {})[event] = Reaction(action, json.loads(match), key)
    return [Subscription(workflow, reactions) for workflow, reactions in found.items()]


def news(connection: Connection, workflows: Sequence[str], limit: int) -> list[News]:
    found: list[News] = []
    known = set(workflows)
    for each in subscriptions(connection):
        if each.workflow in known:
            rows = connection.execute(NEWS, (each.workflow, limit)).fetchall()
            if rows:
                found.append(News(each, [Message(*row) for row in rows]))
    return found


def deal(tx: Transaction, dealt: Dealt) -> int:
    done = 0
    tx.execute(ALONE, (dealt.workflow,))
    for message, effect in dealt.effects:
        if tx.execute(TAKE, (dealt.workflow, message)).rowcount != 1:
            continue
        done += 1
        if isinstance(effect, NewRun):
            _start(tx, effect, dealt.at)
            continue
        tx.flush()
        for (run_id,) in tx.execute(UNENDED, (dealt.workflow, effect.key)).fetchall():
            run = queries.get(tx.connection, str(run_id))
            if run is not None:
                projections.cancel(tx, run, dealt.at)
    tx.due = True
    return done


def _start(tx: Transaction, new: NewRun, at: float) -> None:
    """Start the run of a message, unless there is one for it, or it is one too many."""
    if creation.existing(tx, new) is not None:
        return
    if new.gather is not None and gathering.into_open(tx, new, at) is not None:
        return
    try:
        admission.count_start(tx, new.workflow, new.start_rates, at)
    except TooManyRequests as error:
        log.warning("an event starts no run of %s: %s", new.workflow, error)
        return
    creation.create(tx, new)
    projections.replace_others(tx, at)
