"""Events that start and cancel runs, in SQLite: see the contract in `store/subscriptions.py`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.records import Message
from holdfast.records.subscriptions import Reaction, Subscription
from holdfast.store.base import NewRun
from holdfast.store.sqlite import creation, projections, queries
from holdfast.store.sqlite.database import Transaction
from holdfast.store.sqlite.mailbox import fits
from holdfast.store.subscriptions import Dealt, News

LIST = "SELECT workflow, events, seen FROM subscriptions"
LAST_MESSAGE = "SELECT coalesce(max(id), 0) FROM messages"
PUT = """
INSERT INTO subscriptions (workflow, events, seen) VALUES (?, ?, ?)
ON CONFLICT (workflow) DO UPDATE SET events = excluded.events, seen = excluded.seen
"""
ADVANCE = "UPDATE subscriptions SET seen = ? WHERE workflow = ? AND seen = ?"
UNENDED = """
SELECT id FROM runs WHERE workflow = ? AND key = ? AND continued_as IS NULL AND finished_at IS NULL
"""


def subscribe(tx: Transaction, workflow: str, reactions: Mapping[str, Reaction]) -> Subscription:
    known = {each.workflow: each for each in subscriptions(tx.connection)}.get(workflow)
    last = int(tx.execute(LAST_MESSAGE).fetchone()[0])
    wanted: dict[str, Reaction] = {}
    for name, reaction in reactions.items():
        before = known.reactions.get(name) if known is not None else None
        same = before is not None and replace(reaction, since=before.since) == before
        wanted[name] = before if same and before is not None else replace(reaction, since=last)
    made = Subscription(workflow, wanted, known.seen if known is not None else last)
    if not wanted:
        tx.execute("DELETE FROM subscriptions WHERE workflow = ?", (workflow,))
    elif made != known:
        events = {name: each.as_json() for name, each in wanted.items()}
        tx.execute(PUT, (workflow, json.dumps(events), made.seen))
    return made


def subscriptions(connection: sqlite3.Connection) -> list[Subscription]:
    return [
        Subscription(
            workflow, {name: Reaction(**each) for name, each in json.loads(events).items()}, seen
        )
        for workflow, events, seen in connection.execute(f"{LIST} ORDER BY workflow")
    ]


def news(connection: sqlite3.Connection, workflows: Sequence[str], limit: int) -> list[News]:
    found: list[News] = []
    known = set(workflows)
    for each in subscriptions(connection):
        if each.workflow not in known:
            continue
        rows: list[Message] = []
        for name in each.reactions:
            sql = """
            SELECT id, event_id, name, run_id, payload, at FROM messages
            WHERE name = ? AND run_id IS NULL AND id > ? ORDER BY id LIMIT ?
            """
            rows += [Message(*row) for row in connection.execute(sql, (name, each.seen, limit))]
        rows = sorted(rows, key=lambda message: message.id)[:limit]
        if rows:
            fitting = [row for row in rows if _fits(each.reactions[row.name], row)]
            found.append(News(each, rows[-1].id, fitting))
    return found


def _fits(reaction: Reaction, message: Message) -> bool:
    if message.id <= reaction.since:
        return False
    return fits(dict(reaction.match), json.loads(message.payload))


def deal(tx: Transaction, dealt: Dealt) -> bool:
    workflow, seen = dealt.subscription.workflow, dealt.subscription.seen
    if tx.execute(ADVANCE, (dealt.until, workflow, seen)).rowcount != 1:
        return False
    for effect in dealt.effects:
        if isinstance(effect, NewRun):
            if creation.existing(tx, effect) is None:
                creation.create(tx, effect)
            continue
        tx.flush()
        for (run_id,) in tx.execute(UNENDED, (workflow, effect.key)).fetchall():
            run = queries.get(tx.connection, str(run_id))
            if run is not None:
                projections.cancel(tx, run, dealt.at)
    tx.due = True
    return True
