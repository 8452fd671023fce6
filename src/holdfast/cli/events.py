"""`holdfast events`: send, subscriptions."""

from __future__ import annotations

import argparse
import asyncio
import json

from holdfast.cli import output
from holdfast.cli.options import add_common, parse_json
from holdfast.cli.store import find_run, visit
from holdfast.ids import new_id
from holdfast.runtime.client import send_event


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "send an event to the runs that wait for it, or will"
    sending = verbs.add_parser("send", help=summary, description=f"{summary.capitalize()}.")
    sending.add_argument("name", metavar="NAME", help="the event's name")
    sending.add_argument(
        "--payload", metavar="JSON", default="null", help="@FILE reads a file, - reads stdin"
    )
    sending.add_argument("--id", help="send at most one event with this id")
    sending.add_argument("--run", metavar="RUN", help="only for this run")
    add_common(sending, _send)
    summary = "the events that start runs and cancel them, by workflow"
    listing = verbs.add_parser(
        "subscriptions", help=summary, description=f"{summary.capitalize()}."
    )
    add_common(listing, _subscriptions)


def _send(options: argparse.Namespace) -> int:
    return asyncio.run(_send_event(options))


async def _send_event(options: argparse.Namespace) -> int:
    payload = parse_json(options.payload, "--payload")
    event_id = options.id or new_id("evt")
    async with visit(options) as engine:
        run = None if options.run is None else (await find_run(engine.store, options.run)).id
        is_new = await send_event(options.name, payload, id=event_id, run=run)
    if options.json:
        facts = {"name": options.name, "id": event_id, "run": run}
        output.show_json({"event": facts, "repeated": not is_new})
    elif is_new:
        output.note(f"sent {output.plain(options.name)} as {output.plain(event_id)}")
    else:
        output.note(f"{output.plain(event_id)} was sent before: nothing was sent")
    return 0


def _subscriptions(options: argparse.Namespace) -> int:
    return asyncio.run(_list_subscriptions(options))


async def _list_subscriptions(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        found = await engine.store.subscriptions()
    if options.json:
        output.show_json({"subscriptions": [each.as_json() for each in found]})
        return 0
    rows = [
        [
            output.short(name, 40),
            f"{reaction.action}s",
            output.short(each.workflow, 40),
            output.short(json.dumps(reaction.match) if reaction.match else "", 40),
            output.short(reaction.key or "", 30),
        ]
        for each in found
        for name, reaction in each.reactions.items()
    ]
    output.table(["EVENT", "DOES", "WORKFLOW", "MATCH", "KEY"], rows)
    return 0
