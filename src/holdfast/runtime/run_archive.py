"""A run as one file, to be looked at elsewhere: exported from one store, imported into another.

    holdfast runs export RUN --out run.json        holdfast runs import run.json

The file has the run and its child runs: what is listed of them, their journals, byte for byte, and
their model calls. It leaves out what was made outside the journal: sandboxes' records, streams'
pieces, approvals, events that nobody took. A hash over all of it tells a file that was damaged or
changed on the way.

Only runs that have ended are exported: one that is under way belongs to a worker of its store. An
imported run has the id, times and attributes it had, and can be shown, compared, forked and
frozen; it gives up its key, and its calls count against no budget of the store it comes to.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from holdfast.errors import NotFound, Refused, UsageError
from holdfast.records import CHILD_STARTED, RUN_ENDS, Event, Run
from holdfast.records.calls import Call, CallEnd, CallStart, ProviderAttempt
from holdfast.store import opener
from holdfast.store.base import Store

FORMAT = "holdfast export 1"
MOST_RUNS = 1000
"""Runs in one file: a run, its children, theirs."""


@dataclass(frozen=True)
class ArchivedRun:
    """One run of a file."""

    run: Run
    journal: list[Event]
    calls: list[Call]


@dataclass(frozen=True)
class RunArchive:
    """See the module's text. The run that was asked for comes first."""

    runs: list[ArchivedRun]

    def to_text(self) -> str:
        """The file's text: JSON, a line for each run."""
        lines = [_dumped(_archived_json(each)) for each in self.runs]
        head = {"format": FORMAT, "runs": len(lines), "sha256": _hash(lines)}
        return "\n".join([_dumped(head), *lines, ""])

    @classmethod
    def of_text(cls, text: str) -> RunArchive:
        """Read a file; raises UsageError if it is none, or not as it was written."""
        head, *lines = text.splitlines() or [""]
        try:
            about = json.loads(head)
        except ValueError:
            about = None
        if not isinstance(about, dict) or cast("Any", about).get("format") != FORMAT:
            raise UsageError(
                "this is no exported run", hint="holdfast runs export RUN --out FILE writes one"
            )
        if cast("Any", about).get("sha256") != _hash(lines):
            raise UsageError(
                "the file was damaged or changed since it was written", hint="export the run again"
            )
        try:
            return cls([_archived(json.loads(line)) for line in lines])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"the file can't be read: {error}") from error


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# --- from a store, and into one ---


async def export_run(store: Store, name: str, run_id: str) -> RunArchive:
    """The run and its children, from the store of this name; raises Refused while one goes on."""
    found: list[ArchivedRun] = []
    wanted = [run_id]
    inspection = opener.inspection(name)
    try:
        while wanted:
            id = wanted.pop(0)
            if len(found) == MOST_RUNS:
                raise Refused(f"{run_id} has more than {MOST_RUNS:,} runs below it")
            run = await store.get(id)
            if run is None:
                if not found:
                    raise NotFound(f"there is no run {id}")
                continue  # a child that was deleted since: the parent's journal has what it gave
            if not run.ended:
                raise Refused(
                    f"{id} is {run.status}: a run is exported when it has ended",
                    hint=f"holdfast runs watch {id}",
                )
            journal = await store.load(id)
            calls = await inspection.ask(
                lambda view, of=id: [view.call(row.id) for row in view.calls_of_run(of)]
            )
            found.append(ArchivedRun(run, journal, [each for each in calls if each is not None]))
            wanted += [e.facts["run"]["id"] for e in journal if e.type == CHILD_STARTED]
    finally:
        inspection.close()
    return RunArchive(found)


async def import_runs(store: Store, name: str, archive: RunArchive) -> list[str]:
    """Put the runs of a file into the store of this name; the ids of those that were not there.

    Again the same is nothing new. A run that is there with another journal is refused before
    anything is written.
    """
    fresh: list[ArchivedRun] = []
    for each in archive.runs:
        _check(each)
        known = await store.get(each.run.id)
        if known is None:
            fresh.append(each)
        elif [_as_written(e) for e in await store.load(known.id)] != [
            _as_written(e) for e in each.journal
        ]:
            raise Refused(f"{known.id} is in this store already, with another journal")
    ledger = opener.ledger(name)
    try:
        for each in fresh:
            # Its calls first: they may be imported again, the run's row says that all is there.
            for call in each.calls:
                await ledger.restore(call)
            await store.restore(each.run, each.journal)
    finally:
        ledger.close()
    return [each.run.id for each in fresh]


def _check(archived: ArchivedRun) -> None:
    """A journal that a store would take: whole, of this run, and ended as the run did."""
    run, journal = archived.run, archived.journal
    whole = [event.seq for event in journal] == list(range(1, len(journal) + 1))
    own = all(event.run_id == run.id for event in journal)
    if not (run.ended and whole and own and journal and journal[-1].type in RUN_ENDS):
        raise UsageError(f"the journal of {run.id} in this file is not whole")


def _as_written(event: Event) -> Event:
    return event._replace(log=0)


# --- as JSON ---


def _archived_json(archived: ArchivedRun) -> dict[str, Any]:
    return {
        "run": dataclasses.asdict(archived.run),
        "journal": [_event_json(event) for event in archived.journal],
        "calls": [_call_json(call) for call in archived.calls],
    }


def _archived(data: dict[str, Any]) -> ArchivedRun:
    record: dict[str, Any] = {**data["run"], "owner": None, "due_at": None}
    run = Run(**record)
    return ArchivedRun(
        run,
        [_event(run.id, row) for row in data["journal"]],
        [_call(row) for row in data["calls"]],
    )


def _event_json(event: Event) -> list[Any]:
    """A payload is text, as nearly all are; else, in a list of its own, base64."""
    value: Any = None
    if event.value is not None:
        try:
            value = event.value.decode()
        except UnicodeDecodeError:
            value = [base64.b64encode(event.value).decode()]
    return [event.seq, event.type, event.key, event.at, event.meta, value]


def _event(run_id: str, row: list[Any]) -> Event:
    seq, type, key, at, meta, value = row
    if isinstance(value, list):
        value = base64.b64decode(cast("list[str]", value)[0])
    elif value is not None:
        value = str(value).encode()
    return Event(run_id, int(seq), str(type), str(key), float(at), str(meta), value)


def _call_json(call: Call) -> dict[str, Any]:
    """Without what is the other store's alone: who made it, what it held, its sealed reply."""
    start = {**call.start._asdict(), "key": None, "request_hash": "", "api_key": None}
    end = None
    if call.end is not None:
        attempts = [
            {**dataclasses.asdict(each), "charged": _text_or_none(each.charged)}
            for each in call.end.attempts
        ]
        end = {**call.end._asdict(), "attempts": attempts, "replay": None}
        end["prices"] = None if call.end.prices is None else dict(call.end.prices)
    return {"start": start, "end": end}


def _text_or_none(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _call(data: dict[str, Any]) -> Call:
    given: dict[str, Any] = {**data["start"], "tags": tuple(data["start"]["tags"])}
    start = CallStart(**given)
    if data["end"] is None:
        return Call(start, "unknown")
    end: dict[str, Any] = {
        **data["end"],
        "attempts": tuple(_attempt(each) for each in data["end"]["attempts"]),
    }
    return Call(start, end["status"], CallEnd(**end))


def _attempt(data: dict[str, Any]) -> ProviderAttempt:
    charged = data["charged"]
    given: dict[str, Any] = {**data, "charged": None if charged is None else Decimal(charged)}
    return ProviderAttempt(**given)
