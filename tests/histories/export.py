"""Write a run's journal to a file, as the tests of old histories read it.

    python tests/histories/export.py STORE RUN > tests/histories/NAME.json

Histories are kept for good: each is what some run of some version has really recorded.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from holdfast.records import Event
from holdfast.store.sqlite import events


def to_json(journal: list[Event]) -> str:
    """A journal as text; payloads are JSON already, and stay readable."""
    rows = [
        {
            "run_id": event.run_id,
            "seq": event.seq,
            "type": event.type,
            "key": event.key,
            "at": event.at,
            "meta": json.loads(event.meta),
            "value": None if event.value is None else json.loads(event.value),
        }
        for event in journal
    ]
    return json.dumps(rows, indent=1) + "\n"


def from_json(text: str) -> list[Event]:
    return [
        Event(
            row["run_id"],
            row["seq"],
            row["type"],
            row["key"],
            row["at"],
            json.dumps(row["meta"]),
            None if row["value"] is None else json.dumps(row["value"]).encode(),
        )
        for row in json.loads(text)
    ]


if __name__ == "__main__":
    with closing(sqlite3.connect(Path(sys.argv[1]))) as connection:
        sys.stdout.write(to_json(events.load(connection, sys.argv[2])))
