"""What must hold of a store after any number of kills."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

from holdfast.records import COMMANDS, COMPLETIONS, RUN_ENDS, STEP_STARTED, Event
from holdfast.store.sqlite import events


def journals(store: Path) -> dict[str, list[Event]]:
    """Every run's journal, with each row checked against its hash and none missing."""
    with closing(sqlite3.connect(store)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchone():
            return {}  # killed before there was a schema
        runs = [row[0] for row in connection.execute("SELECT id FROM runs ORDER BY id")]
        return {run: events.load(connection, run) for run in runs}


def check_whole(found: dict[str, list[Event]]) -> None:
    """Each command asked for once, each closed once at most, each run ended once."""
    for run, journal in found.items():
        opened = Counter(event.key for event in journal if event.type in COMMANDS)
        closed = Counter(event.key for event in journal if event.type in COMPLETIONS)
        assert not {key for key, times in opened.items() if times > 1}, f"{run}: opened twice"
        assert not {key for key, times in closed.items() if times > 1}, f"{run}: recorded twice"
        assert closed.keys() <= opened.keys(), f"{run}: a result of nothing"
        ends = [event.type for event in journal if event.type in RUN_ENDS]
        assert len(ends) == 1, f"{run} ended {len(ends)} times"
        assert journal[-1].type == ends[0], f"{run} went on after its end"


def check_ended(store: Path) -> None:
    """No run is left over, and nothing is kept for runs that have ended."""
    with closing(sqlite3.connect(store)) as connection:
        left = connection.execute("SELECT id, status FROM runs WHERE finished_at IS NULL")
        assert left.fetchall() == []
        for table in ("waits", "inbox", "webhooks"):
            rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert rows == (0,), f"{table} holds something of ended runs"


def check_kept(found: dict[str, list[Event]], acknowledged: Path) -> int:
    """Whatever a run was told is safe is there, as it was; says how many that were."""
    if not acknowledged.exists():
        return 0
    lines = acknowledged.read_text().splitlines()
    for line in lines:
        run, seq, type, digest = json.loads(line)
        journal = found.get(run, [])
        assert len(journal) >= seq, f"{run}: event {seq} ({type}) was acknowledged and is gone"
        stored = journal[seq - 1]
        same = events.event_hash(stored).hex() == digest
        assert same, f"{run}: event {seq} was acknowledged as {type} and is now {stored.type}"
    return len(lines)


def check_effects(found: dict[str, list[Event]], effects: Path) -> int:
    """Every recorded step was done, at least once, and always under the same key."""
    done: dict[str, set[tuple[str, str]]] = defaultdict(set)
    lines = effects.read_text().splitlines()
    for line in lines:
        key, _attempt, name, what = json.loads(line)
        done[key].add((name, what.removesuffix(f" {_attempt}")))
    for key, different in done.items():
        assert len(different) == 1, f"{key} stood for different things: {different}"
    steps = {
        f"{run}:{event.key}"
        for run, journal in found.items()
        for event in journal
        if event.type == STEP_STARTED and event.facts["name"] not in ("start", "send_event")
    }
    assert steps == done.keys(), "what was done and what was recorded differ"
    return len(lines)
