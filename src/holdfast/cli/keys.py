"""`holdfast keys`: virtual keys for the gateway's HTTP service."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from holdfast.cli import output
from holdfast.errors import NotFound, UsageError
from holdfast.records.calls import SpendLimit, VirtualKey


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", help="make a key; it is shown once")
    create.add_argument("--name", default="", help="what it is for")
    create.add_argument("--model", action="append", default=[], help="pattern, may be repeated")
    create.add_argument("--expires", help='such as "24h"')
    create.add_argument("--usd", help="hard limit in US dollars")
    create.add_argument("--tokens", type=int, help="hard limit in tokens")
    create.add_argument("--run", help="count its calls against this run")
    create.add_argument("--tag", action="append", default=[])
    create.add_argument("--user", help="whose it is: counted against that user's budget too")
    create.add_argument("--team", help="the team's, likewise")
    create.set_defaults(handler=run_create)
    listing = verbs.add_parser("list", help="the keys and what they spent")
    listing.set_defaults(handler=run_list)
    revoke = verbs.add_parser("revoke", help="make a key useless, at once")
    revoke.add_argument("id")
    revoke.set_defaults(handler=run_revoke)
    limit = verbs.add_parser("limit", help="a hard limit for a user, a team, a key or a tag")
    limit.add_argument("scope", help="such as team:search, user:ann, key:key_…, tag:nightly")
    limit.add_argument("--usd", help="in US dollars")
    limit.add_argument("--tokens", type=int, help="in tokens; without both the limit is lifted")
    limit.add_argument("--warn-at", help="warn once when this part of it is spent, such as 0.8")
    limit.set_defaults(handler=run_limit)
    for verb in (create, listing, revoke, limit):
        verb.add_argument("--json", action="store_true")


def run_create(options: argparse.Namespace) -> int:
    from holdfast.gateway.keys import create_key, public

    async def work(ledger: Any) -> int:
        made = await create_key(
            ledger,
            name=options.name,
            models=options.model,
            expires_in=options.expires,
            usd=_amount(options.usd),
            tokens=options.tokens,
            run_id=options.run,
            tags=options.tag,
            user=options.user,
            team=options.team,
        )
        if options.json:
            output.show_json({**_shown(public(made.key)), "secret": made.secret})
        else:
            output.note(f"{made.key.id}: this is shown once")
            print(made.secret)
        return 0

    return _with_ledger(work)


def run_list(options: argparse.Namespace) -> int:
    async def work(ledger: Any) -> int:
        keys: list[VirtualKey] = await ledger.keys()
        spends = [await ledger.spend(f"key:{key.id}") for key in keys]
        if options.json:
            shown = [
                {**_shown(key), "spent_usd": str(Decimal(spend.usd) / 10**9)}
                for key, spend in zip(keys, spends, strict=True)
            ]
            output.show_json({"keys": shown})
            return 0
        rows: list[list[str]] = []
        for key, spend in zip(keys, spends, strict=True):
            limit = spend.limit.usd if spend.limit else None
            room = "" if limit is None else f" of ${Decimal(limit) / 10**9:f}"
            spent = f"${Decimal(spend.usd) / 10**9:f}{room}"
            rows.append([key.id, key.name, _state(key), ", ".join(key.models) or "every", spent])
        output.table(["KEY", "NAME", "STATE", "MODELS", "SPENT"], rows)
        return 0

    return _with_ledger(work)


def run_revoke(options: argparse.Namespace) -> int:
    async def work(ledger: Any) -> int:
        if not await ledger.revoke_key(options.id, time.time()):
            raise NotFound(f"there is no key {options.id!r}", hint="holdfast keys list")
        if options.json:
            output.show_json({"id": options.id, "revoked": True})
        else:
            output.note(f"{options.id} is revoked")
        return 0

    return _with_ledger(work)


def run_limit(options: argparse.Namespace) -> int:
    kind, _, name = options.scope.partition(":")
    if kind not in ("user", "team", "key", "tag") or not name:
        raise UsageError(f"{options.scope!r} is no scope", hint="such as team:search")

    part = _amount(options.warn_at)
    if part is not None and not 0 < part <= 1:
        raise UsageError("--warn-at is a part of the limit", hint="more than 0, at most 1")
    if part is not None and options.usd is None and options.tokens is None:
        raise UsageError("--warn-at needs a limit", hint="give --usd or --tokens too")

    async def work(ledger: Any) -> int:
        from holdfast.gateway.hooks import set_warn_at  # slow to import, and not needed by all

        usd = _amount(options.usd)
        nano = None if usd is None else int(usd * 10**9)
        await ledger.set_limit(SpendLimit(options.scope, nano, options.tokens))
        await set_warn_at(ledger, options.scope, part)
        spend = await ledger.spend(options.scope)
        if options.json:
            shown = {"scope": options.scope, "usd": options.usd, "tokens": options.tokens,
                     "warn_at": options.warn_at}  # fmt: skip
            output.show_json({**shown, "spent_usd": str(Decimal(spend.usd) / 10**9)})
        else:
            output.note(f"{options.scope} has spent ${Decimal(spend.usd) / 10**9:f} so far")
        return 0

    return _with_ledger(work)


def _with_ledger(work: Callable[[Any], Awaitable[int]]) -> int:
    from holdfast.session import default_store
    from holdfast.store import opener

    async def main() -> int:
        ledger = opener.ledger(default_store())
        try:
            return await work(ledger)
        finally:
            ledger.close()

    return asyncio.run(main())


def _amount(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise UsageError(f"{text!r} is no amount", hint="such as 2.50") from None
    if not amount.is_finite() or amount < 0:
        raise UsageError(f"{text!r} is no amount", hint="0 or more")
    return amount


def _shown(key: VirtualKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "state": _state(key),
        "models": list(key.models),
        "created_at": _moment(key.created_at),
        "expires_at": _moment(key.expires_at),
        "run_id": key.run_id,
        "tags": list(key.tags),
    }


def _state(key: VirtualKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= time.time():
        return "expired"
    return "valid"


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
