"""Take the pictures of the inspector in docs/images, from a store that is made for them.

    make screenshots
    python scripts/screenshots.py support repo      some of them

Needs Chromium (`apt-get install chromium`).
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import Browser, sync_playwright  # noqa: E402

import demo_store  # noqa: E402
from browser.conftest import ARGUMENTS, chromium_path, free_port  # noqa: E402
from holdfast.runtime.app import open_engine  # noqa: E402
from holdfast.server.app import create_app  # noqa: E402
from holdfast.server.http_server import bind, serve  # noqa: E402
from holdfast.server.settings import ServerSettings  # noqa: E402
from seeding import Seed  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE, PHONE = (1280, 800), (360, 780)
SHOTS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "runs": ("/runs", "light", WIDE),
    "runs-dark": ("/runs", "dark", WIDE),
    "runs-phone": ("/runs", "light", PHONE),
    "run": ("/runs/{passed}?step=0/2", "light", WIDE),
    "run-dark": ("/runs/{passed}?step=0/2", "dark", WIDE),
    "run-phone": ("/runs/{passed}?step=0/2", "light", PHONE),
    "failed": ("/runs/{failed}", "light", WIDE),
    "support": ("/runs/{support}", "light", (1280, 1100)),
    "support-dark": ("/runs/{support}", "dark", (1280, 1100)),
    "support-phone": ("/runs/{waiting}", "light", PHONE),
    "support-waiting": ("/runs/{waiting}", "light", WIDE),
    "repo": ("/runs/{repo}", "light", (1280, 1000)),
    "repo-dark": ("/runs/{repo}", "dark", (1280, 1000)),
    "repo-phone": ("/runs/{repo}", "light", PHONE),
    "parallel": ("/runs/{parallel}", "light", (1280, 620)),
    "parallel-phone": ("/runs/{parallel}", "light", PHONE),
    "children": ("/runs/{family}", "light", (1280, 560)),
    "children-dark": ("/runs/{family}", "dark", (1280, 560)),
    "children-phone": ("/runs/{family}", "light", PHONE),
    "start": ("/runs/start?workflow=evaluate_code", "light", (1280, 1000)),
    "start-phone": ("/runs/start?workflow=evaluate_code", "light", PHONE),
    "long": ("/runs/{long}", "light", (1280, 600)),
    "compare": ("/runs/{parallel}/compare/{forked}", "light", WIDE),
    "transcript": ("/runs/{passed}/transcript", "light", (1280, 1500)),
    "events": ("/runs/{failed}/events", "light", WIDE),
    "json": ("/runs/{passed}/json", "light", WIDE),
    "fork": ("/runs/{passed}/fork?step=0/7", "light", (1280, 620)),
    "approval": ("/runs/{approval}", "light", (1280, 560)),
    "approvals": ("/approvals", "light", (1280, 480)),
    "models": ("/models?since=7d", "light", WIDE),
    "calls": ("/calls", "light", WIDE),
    "call": ("/calls/{call}", "light", (1280, 560)),
    "sandboxes": ("/sandboxes", "light", (1280, 420)),
    "sandbox": ("/sandboxes/{sandbox}", "light", (1280, 480)),
    "workers": ("/workers", "light", (1280, 600)),
    "login": ("/login", "light", (1280, 360)),
    "login-dark": ("/login", "dark", (1280, 360)),
    "login-phone": ("/login", "light", (390, 360)),
    "not-found": ("/nowhere", "light", (1280, 260)),
}


class Served:
    """The demo store, served by a thread of this process."""

    def __init__(self) -> None:
        self.url = self.guarded_url = ""
        self._path = Path(".holdfast/holdfast.db")
        self._seed = Seed(self._path)
        self.ids = demo_store.fill(self._seed)
        self._seed.close()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = self._loop.create_future()
        opened, guarded = (
            ServerSettings(port=free_port()),
            ServerSettings(port=free_port(), token=secrets.token_urlsafe()),
        )
        self.url, self.guarded_url = opened.url, guarded.url
        ready = [asyncio.Event(), asyncio.Event()]
        async with open_engine(self._path, worker=False) as engine, asyncio.TaskGroup() as group:
            for settings, event in zip((opened, guarded), ready, strict=True):
                app, listener = create_app(engine, settings), bind("127.0.0.1", settings.port)
                group.create_task(serve(app, listener, self._stop, event.set))
            for event in ready:
                await event.wait()
            self._ready.set()

    def __enter__(self) -> Served:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set_result, "done")
        self._thread.join()
        self._seed.let_go()


def take(browser: Browser, served: Served, name: str) -> None:
    place, scheme, (width, height) = SHOTS[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    server = served.guarded_url if place == "/login" else served.url
    page.goto(server + place.format(**served.ids), wait_until="load")
    if page.locator("body").get_attribute("data-live"):
        page.locator("#live[data-state=live]").wait_for()
    page.screenshot(path=IMAGES / f"inspector-{name}.png")
    context.close()
    print(f"inspector-{name}.png")


def main() -> int:
    path = chromium_path()
    if path is None:
        print("no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    # The pictures show the place of the example, not that of the machine they were taken on.
    platform.node, platform.release = (lambda: "build-03"), (lambda: "6.12")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), Served() as served:
        pictures(path, served)
    return 0


def pictures(path: str, served: Served) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        for name in sys.argv[1:] or SHOTS:
            take(browser, served, name)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
