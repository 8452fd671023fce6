"""`holdfast models list`: what is usable here, and why not."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli import output

if TYPE_CHECKING:
    from holdfast.gateway.model_list import ListedModel, Offered


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="what is usable here, and why not")
    listing.add_argument("--all", action="store_true", help="every model of every provider")
    listing.add_argument("--offline", action="store_true", help="do not ask the providers")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(handler=run_list)


def run_list(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


async def _list(options: argparse.Namespace) -> int:
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.model_list import ask_providers, list_models, why_not_here
    from holdfast.store import opener

    gateway = Gateway(ledger=opener.ledger(":memory:"))
    try:
        asked = {} if options.offline else await ask_providers(gateway)
        models = list_models(gateway, look=True, asked=asked)
        providers = {name: why_not_here(provider) for name, provider in gateway.providers.items()}
    finally:
        await gateway.close()
    if options.json:
        output.show_json(
            {
                "providers": [
                    {
                        "name": name,
                        "usable": why is None,
                        "why_not": why,
                        "asked": isinstance(asked.get(name), dict),
                        "why_not_asked": _why_not_asked(asked.get(name)),
                    }
                    for name, why in providers.items()
                ],
                "models": [asdict(m) for m in models if options.all or _is_of_use(m)],
            }
        )
        return 0
    rows = [
        [
            m.name, "yes" if m.chat else "no", m.input_price or "unknown",
            m.output_price or "unknown", m.why_not or "usable",
        ]
        for m in models
        if options.all or _is_of_use(m)
    ]  # fmt: skip
    output.table(["MODEL", "CHAT", "IN $/M", "OUT $/M", "STATE"], rows)
    output.table(
        ["PROVIDER", "STATE", "MODELS"],
        [
            [name, why or "usable", "" if why else _known_by(asked.get(name))]
            for name, why in providers.items()
        ],
    )
    return 0


def _is_of_use(model: ListedModel) -> bool:
    return model.why_not is None and model.chat


def _why_not_asked(answer: Offered | str | None) -> str | None:
    return answer if isinstance(answer, str) else None


def _known_by(answer: Offered | str | None) -> str:
    """Who says which models the provider has."""
    if answer is None:
        return "not asked"
    return f"not told: {answer}" if isinstance(answer, str) else "told by the provider"
