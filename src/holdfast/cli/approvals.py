"""`holdfast approvals`: list, show, approve, reject."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import time
from typing import Any, get_args

from holdfast.cli import output
from holdfast.cli.options import add_common
from holdfast.cli.store import find_run, visit
from holdfast.errors import NotFound, UsageError
from holdfast.records.approvals import Approval, ApprovalStatus

SHORT_HASH = 12


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "what waits for a decision, newest first"
    listing = verbs.add_parser("list", help=summary, description=f"{summary.capitalize()}.")
    listing.add_argument(
        "--status",
        choices=(*get_args(ApprovalStatus), "any"),
        default="pending",
        help="those with this status (default: pending)",
    )
    listing.add_argument("--run", metavar="RUN", help="those of this run")
    listing.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many (50)")
    add_common(listing, _list)
    summary = "exactly what would be done, and what was decided"
    showing = verbs.add_parser("show", help=summary, description=f"{summary.capitalize()}.")
    showing.add_argument("id", metavar="APPROVAL", help="its id, or how it begins")
    add_common(showing, _show)
    for verb, summary, handler in (
        ("approve", "agree: the run goes on", _approve),
        ("reject", "refuse: the run is told", _reject),
    ):
        deciding = verbs.add_parser(verb, help=summary, description=f"{summary.capitalize()}.")
        deciding.add_argument("id", metavar="APPROVAL", help="its id, or how it begins")
        deciding.add_argument("--by", metavar="NAME", help="who decides (default: you)")
        deciding.add_argument("--note", default="", metavar="TEXT", help="why; goes on record")
        deciding.add_argument(
            "--hash", metavar="HASH", help="of the arguments you saw: refused if others wait"
        )
        add_common(deciding, handler)


def _list(options: argparse.Namespace) -> int:
    return asyncio.run(_list_approvals(options))


async def _list_approvals(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        run = None if options.run is None else (await find_run(engine.store, options.run)).id
        status = None if options.status == "any" else options.status
        found = await engine.store.approvals(status, run, options.limit, None)
    if options.json:
        output.show_json({"approvals": [each.as_json() for each in found]})
        return 0
    rows = [
        [
            each.id,
            each.status,
            output.short(each.title, 30),
            output.short(json.dumps(each.arguments, ensure_ascii=False), 50),
            output.short(each.asked_of, 20),
            _left(each),
        ]
        for each in found
    ]
    output.table(["APPROVAL", "STATUS", "TITLE", "ARGUMENTS", "ASKED OF", "TIME LEFT"], rows)
    return 0


def _left(each: Approval) -> str:
    if each.status != "pending":
        return ""
    return output.duration(max(each.expires_at - time.time(), 0.0))


def _show(options: argparse.Namespace) -> int:
    return asyncio.run(_show_approval(options))


async def _show_approval(options: argparse.Namespace) -> int:
    async with visit(options) as engine:
        found = await _find(engine.store, options.id)
    if options.json:
        output.show_json(found.as_json())
    else:
        _describe(found)
    return 0


def _describe(found: Approval) -> None:
    lines = [
        ("approval", found.id),
        ("status", found.status),
        ("title", found.title),
        ("tool", found.tool or ""),
        ("run", found.run_id),
        ("asked of", found.asked_of),
        ("asked", output.moment(found.requested_at)),
        ("until", f"{output.moment(found.expires_at)}, then {found.fallback}"),
        ("escalated from", found.escalated_from or ""),
        ("hash", found.arguments_hash),
    ]
    if found.decided_at is not None:
        who = found.decided_by or "nobody"
        lines.append(("decided", f"{output.moment(found.decided_at)} by {who} ({found.how})"))
        lines.append(("note", found.note))
    if found.used_at is not None:
        lines.append(("used", f"{output.moment(found.used_at)} by {found.used_by}"))
    for name, value in lines:
        if value:
            print(f"{name:15} {output.plain(value)}")
    print("arguments")
    shown = json.dumps(found.arguments, ensure_ascii=False, indent=2)
    for line in shown.splitlines():
        print(f"  {output.plain(line)}")


def _approve(options: argparse.Namespace) -> int:
    return asyncio.run(_decide(options, approved=True))


def _reject(options: argparse.Namespace) -> int:
    return asyncio.run(_decide(options, approved=False))


async def _decide(options: argparse.Namespace, *, approved: bool) -> int:
    from holdfast.loop.approval_decisions import decide

    async with visit(options) as engine:
        found = await _find(engine.store, options.id)
        decided = await decide(
            found.id,
            approved,
            by=options.by or getpass.getuser(),
            note=options.note,
            arguments_hash=_whole_hash(options.hash, found),
            how="cli",
        )
    if options.json:
        output.show_json(decided.as_json())
    else:
        by = output.plain(decided.decided_by or "")
        output.note(f"{decided.id} is {decided.status} by {by}")
    return 0


def _whole_hash(given: str | None, found: Approval) -> str | None:
    """The hash that was meant: whole, or its beginning as lists and messages show it."""
    if given is not None and len(given) >= SHORT_HASH and found.arguments_hash.startswith(given):
        return found.arguments_hash
    return given


async def _find(store: Any, named: str) -> Approval:
    """The approval with this id, or the only one that begins so among the latest."""
    exact = await store.approval(named)
    if exact is not None:
        return exact
    prefix = named.upper().removeprefix("APR_")
    found: list[Approval] = [
        each
        for each in await store.approvals(None, None, 1000, None)
        if prefix and each.id.removeprefix("apr_").startswith(prefix)
    ]
    if not found:
        raise NotFound(f"there is no approval {named}", hint="holdfast approvals list")
    if len(found) > 1:
        raise UsageError(
            f"several approvals begin with {named}",
            hint=f"say more of it: {found[0].id}, {found[1].id}",
        )
    return found[0]
