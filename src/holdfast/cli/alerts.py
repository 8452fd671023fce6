"""`holdfast alerts`: who is told of failed runs, approvals and budgets, and trying it."""

from __future__ import annotations

import argparse
import asyncio
import time

from holdfast.cli import output
from holdfast.cli.options import add_common, store_name
from holdfast.errors import NotFound, RunFailed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "who is told of what"
    listing = verbs.add_parser("list", help=summary, description=f"{summary.capitalize()}.")
    add_common(listing, _list)
    summary = "send an alert now, and wait until it has arrived"
    test = verbs.add_parser("test", help=summary, description=f"{summary.capitalize()}.")
    test.add_argument("name", metavar="NAME", help="as in [alerts.to.NAME]")
    add_common(test, _test)


def _list(options: argparse.Namespace) -> int:
    from holdfast import config
    from holdfast.server.alert_settings import AlertSettings

    targets = config.section("alerts", AlertSettings).to
    if options.json:
        output.show_json(
            {
                "targets": [
                    {
                        "name": name,
                        "kind": each.kind,
                        "events": list(each.events),
                        "workflows": list(each.workflows),
                    }
                    for name, each in targets.items()
                ]
            }
        )
        return 0
    if not targets:
        output.note("nobody is told of anything; [alerts.to.NAME] in holdfast.toml names somebody")
        return 0
    rows = [
        [name, each.kind, ", ".join(each.events), ", ".join(each.workflows) or "all"]
        for name, each in targets.items()
    ]
    output.table(["NAME", "KIND", "EVENTS", "WORKFLOWS"], rows)
    return 0


def _test(options: argparse.Namespace) -> int:
    return asyncio.run(_send(options))


async def _send(options: argparse.Namespace) -> int:
    from holdfast import config
    from holdfast.runtime.app import open_engine
    from holdfast.runtime.client import get_run
    from holdfast.server.alert_settings import AlertSettings
    from holdfast.server.alerts import alert_of, alerting

    targets = config.section("alerts", AlertSettings).to
    if options.name not in targets:
        known = ", ".join(targets) or "none"
        raise NotFound(f"there is no [alerts.to.{options.name}] (there are: {known})")
    async with open_engine(store_name(options)) as engine, alerting(engine) as found:
        assert found is not None
        key = f"test:{options.name}:{time.time_ns()}"
        [run_id] = await found.tell(alert_of("test", time.time()), key, only=options.name)
        if not options.json:
            output.note(f"{run_id} sends it; Ctrl-C stops waiting")
        try:
            await (await get_run(run_id)).result()
        except RunFailed as error:
            if options.json:
                output.show_json({"run": run_id, "delivered": False, "error": str(error)})
            else:
                output.note(f"not delivered: {error}")
            return 1
    if options.json:
        output.show_json({"run": run_id, "delivered": True})
    else:
        print("delivered")
    return 0
