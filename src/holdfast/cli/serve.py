"""`holdfast serve`: the HTTP API and the inspector, with a worker in the same process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.options import (
    add_common,
    add_engine,
    add_grace,
    add_modules,
    grace_seconds,
    store_name,
)
from holdfast.cli.tracing import telling_others, tracing
from holdfast.cli.worker import pruning, stopped_by_signals, telling

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine
    from holdfast.server.settings import ServerSettings


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_modules(parser)
    parser.add_argument("--host", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="0 takes any free one (7420)")
    parser.add_argument(
        "--token",
        help="what clients must show, needed beyond loopback; safer as $HOLDFAST_SERVER_TOKEN",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients may call the server by; may be repeated",
    )
    parser.add_argument(
        "--no-worker", action="store_true", help="carry out no runs here: leave them to workers"
    )
    parser.add_argument("--quiet", action="store_true", help="no line for each finished step")
    add_engine(parser)
    add_grace(parser, "server")
    add_common(parser, _serve)


def _serve(options: argparse.Namespace) -> int:
    from holdfast.cli.workflow_files import load, load_agents
    from holdfast.server.http_server import bind, port_of

    check_configuration()
    settings = _settings(options)
    grace = grace_seconds(options)
    listener = bind(settings.host, settings.port)
    settings = replace(settings, port=port_of(listener))
    load_agents()
    for named in options.modules:
        load(named)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(_run(options, settings, listener, grace))
    finally:
        listener.close()


def _settings(options: argparse.Namespace) -> ServerSettings:
    """What the configuration says, and what was given on the command line laid over it."""
    from holdfast import config
    from holdfast.server.settings import ServerSettings

    given: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "token": options.token,
        "allowed_hosts": tuple(options.allow_host) or None,
    }
    settings = config.section("server", ServerSettings)
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings, **chosen)
    settings.check_reach()
    return settings


async def _run(
    options: argparse.Namespace, settings: ServerSettings, listener: socket.socket, grace: float
) -> int:
    from holdfast.runtime.app import open_engine
    from holdfast.server.app import create_app
    from holdfast.server.http_server import serve
    from holdfast.server.inspector.project_picture import ProjectPicture
    from holdfast.server.sandbox_ports import PortProxy

    stop = stopped_by_signals()
    path = store_name(options)
    works = not options.no_worker
    async with open_engine(path, worker=works, grace=grace, engine=options.engine) as engine:
        picture = ProjectPicture.of_this_folder(tuple(options.modules), engine.store.name)
        app = create_app(engine, settings, picture=picture)
        async with (
            pruning(engine),
            tracing(engine),
            telling_others(engine),
            telling(engine, quiet=options.quiet, json=options.json),
        ):
            ports = PortProxy(settings.sandbox_domain, settings.port)
            ready = lambda: _say_where(options, settings, engine)  # noqa: E731
            await serve(app, listener, stop, ready, ports)
        name, held = stop.result(), len(engine.runs)
        if not options.json and held:
            output.note(f"{name}: finishing steps for up to {grace:g} s, then giving runs back")
    if options.json:
        output.show_json({"stopped": name, "given_back": held})
    else:
        output.note("stopped")
    return 0


def _say_where(options: argparse.Namespace, settings: ServerSettings, engine: Engine) -> None:
    from holdfast.runtime.definitions import registered

    workflows, worker = sorted(registered()), engine.me.id if engine.works else None
    if options.json:
        facts = {"url": settings.url, "store": engine.store.name, "worker": worker}
        output.show_json({**facts, "workflows": workflows, "models": _providers()})
        return
    output.note(f"holdfast at {settings.url}")
    output.note(f"store {engine.store.name}, {f'worker {worker}' if worker else 'no worker'}")
    output.note(f"workflows: {', '.join(workflows) or 'none'}")
    output.note(f"models of: {', '.join(_providers())}")
    output.note("Ctrl-C stops it; runs are kept and go on with the next worker")


def _providers() -> list[str]:
    """Whose models can be used here."""
    from holdfast.gateway.calls import default_gateway
    from holdfast.gateway.model_list import why_not_here

    providers = default_gateway().providers
    return [name for name, provider in providers.items() if why_not_here(provider) is None]
