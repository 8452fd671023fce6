"""`holdfast inspect`: the inspector in a browser, on this store.

If a server of this store is there already, its pages are opened; otherwise one is started that
only looks (no worker), and serves until Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import urllib.request
import webbrowser
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.cli import output
from holdfast.cli.options import add_common, nearest, store_name
from holdfast.errors import StoreError, UsageError

if TYPE_CHECKING:
    from holdfast.server.settings import ServerSettings

PLACES = ("runs", "approvals", "models", "calls", "sandboxes", "workers", "blueprint")
LOOK_SECONDS = 10.0
"""A busy server may take this long; where there is none, the system says so at once."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "what",
        nargs="?",
        default="runs",
        metavar="WHAT",
        help=f"where to begin: {', '.join(PLACES)}, latest, or an id of a run, call or sandbox",
    )
    parser.add_argument(
        "--web", action="store_true", help="open the browser also where that is not sure to work"
    )
    parser.add_argument("--no-browser", action="store_true", help="only say where it is")
    parser.add_argument("--host", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="0 takes any free one (7420, or any free one)")
    add_common(parser, _inspect)


def _inspect(options: argparse.Namespace) -> int:
    from holdfast.store import opener

    path = store_name(options)
    if not opener.exists(path):
        raise StoreError(
            f"there is no store at {path}",
            hint="`holdfast run`, `start` and `worker` make one; --store or HOLDFAST_STORE names "
            "another place",
        )
    place = place_of(_id_of_run(options))
    settings = _settings(options)
    if options.host is None and options.port is None and _serves(settings, path):
        _show(options, f"{settings.url}{place}", already=True)
        return 0
    return _serve(options, settings, path, place)


def _id_of_run(options: argparse.Namespace) -> str:
    """What to show; of `latest`, or the beginning of a run's id, the whole id."""
    from holdfast.cli.store import LATEST, find_run, visit

    what: str = options.what
    if what != LATEST and not what.startswith("run_"):
        return what

    async def whole() -> str:
        async with visit(options) as engine:
            return (await find_run(engine.store, what)).id

    return asyncio.run(whole())


def place_of(what: str) -> str:
    """The page that a word stands for: a section, or an id."""
    if what in PLACES:
        return f"/{what}"
    prefix, sign, _ = what.partition("_")
    sections = {"run": "runs", "call": "calls", "sbx": "sandboxes", "apr": "approvals"}
    if not sign or prefix not in sections:
        raise UsageError(
            f"{what!r} is nothing to inspect",
            hint=f"{nearest(what, PLACES)} (or latest, or an id: run_…, call_…)",
        )
    return f"/{sections[prefix]}/{quote(what, safe='')}"


def _settings(options: argparse.Namespace) -> ServerSettings:
    from holdfast import config
    from holdfast.server.settings import ServerSettings

    settings = config.section("server", ServerSettings)
    given: dict[str, Any] = {"host": options.host, "port": options.port}
    settings = replace(
        settings, **{name: value for name, value in given.items() if value is not None}
    )
    settings.check_reach()
    return settings


def _serves(settings: ServerSettings, path: str) -> bool:
    """Whether a server of this very store answers where one would be."""
    from holdfast.store import opener

    headers = {"authorization": f"Bearer {settings.token}"} if settings.token else {}
    request = urllib.request.Request(f"{settings.url}/workers.json", headers=headers)  # noqa: S310 - http, ours
    # Not through a proxy: it is this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=LOOK_SECONDS) as answer:
            found: Any = json.load(answer)
        return opener.is_same(found["store"]["path"], path)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # nobody there, or somebody else


def _serve(options: argparse.Namespace, settings: ServerSettings, path: str, place: str) -> int:
    from holdfast.errors import ServerUnavailable
    from holdfast.server.http_server import bind, port_of

    try:
        listener = bind(settings.host, settings.port)
    except ServerUnavailable:
        if options.port is not None:
            raise
        listener = bind(settings.host, 0)  # the usual port is taken, by another store's server
    settings = replace(settings, port=port_of(listener))

    async def main() -> None:
        from holdfast.cli.worker import stopped_by_signals
        from holdfast.runtime.app import open_engine
        from holdfast.server.app import create_app
        from holdfast.server.http_server import serve
        from holdfast.server.inspector.project_picture import ProjectPicture

        stop = stopped_by_signals()
        async with open_engine(path, worker=False) as engine:
            picture = ProjectPicture.of_this_folder((), engine.store.name)
            app = create_app(engine, settings, picture=picture)
            await serve(
                app, listener, stop, lambda: _show(options, f"{settings.url}{place}", already=False)
            )

    try:
        asyncio.run(main())
    finally:
        listener.close()
    return 0


def _show(options: argparse.Namespace, url: str, *, already: bool) -> None:
    """Open the browser if there is one, and say where the page is."""
    opened = not options.no_browser and (options.web or _has_browser()) and webbrowser.open(url)
    if options.json:
        output.show_json({"url": url, "opened": opened, "serving": not already})
        return
    print(url, flush=True)
    if not opened:
        output.note("open this in a browser")
    if not already:
        output.note("Ctrl-C stops it; it only looks, runs are carried out elsewhere")


def _has_browser() -> bool:
    """Whether a browser would open where somebody sees it."""
    if sys.platform == "darwin" or os.name == "nt":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
