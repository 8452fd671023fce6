"""`holdfast models list`: what is usable here, and why not."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict

from holdfast.cli import output


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="what is usable here, and why not")
    listing.add_argument("--all", action="store_true", help="every model of every provider")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(handler=run_list)


def run_list(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


async def _list(options: argparse.Namespace) -> int:
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.model_list import list_models, why_not_here
    from holdfast.store.sqlite.ledger import SqliteLedger

    gateway = Gateway(ledger=SqliteLedger(":memory:"))
    try:
        models = list_models(gateway, look=True)
        providers = {name: why_not_here(provider) for name, provider in gateway.providers.items()}
    finally:
        await gateway.close()
    if options.json:
        output.show_json(
            {
                "providers": [
                    {"name": name, "usable": why is None, "why_not": why}
                    for name, why in providers.items()
                ],
                "models": [asdict(m) for m in models if options.all or m.why_not is None],
            }
        )
        return 0
    rows = [
        [m.name, m.input_price or "unknown", m.output_price or "unknown", m.why_not or "usable"]
        for m in models
        if options.all or m.why_not is None
    ]
    output.table(["MODEL", "IN $/M", "OUT $/M", "STATE"], rows)
    output.table(
        ["PROVIDER", "STATE"], [[name, why or "usable"] for name, why in providers.items()]
    )
    return 0
