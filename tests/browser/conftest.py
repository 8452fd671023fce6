"""A real Chromium, and real servers for it to look at."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import playwright
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import demo_store
from seeding import Seed
from waiting import LIMIT, until

HERE = Path(__file__).parent
expect.set_options(timeout=LIMIT / 2 * 1000)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium_path() -> str | None:
    """Where Debian and others put it."""
    return next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )


def driver_cannot_start() -> str | None:
    """Why the node that Playwright brings does not run: a library that a minimal system lacks."""
    node = Path(playwright.__file__).parent / "driver" / "node"
    told = subprocess.run([node, "--version"], capture_output=True, text=True)
    return told.stderr.strip() if told.returncode else None


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the tests of one file: Playwright's loop must not be there for others' tests."""
    path = chromium_path()
    if path is None:
        pytest.skip(
            "no Chromium here: apt-get install chromium (make test does, as root or with sudo)"
        )
    if why := driver_cannot_start():
        pytest.skip(
            f"Playwright's driver can't start here: {why} (make test installs what it wants)"
        )
    with sync_playwright() as opened:
        browser = opened.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A browser window that notes what should not happen."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page = context.new_page()
        self.page.set_default_timeout(LIMIT / 2 * 1000)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._dialog)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location.get('url')}")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check(self) -> None:
        """No error, no dialog, nothing that the page's policy forbids, no other host."""
        found = [
            text for text in self.complaints if not any(word in text for word in self.expected)
        ]
        assert found == []
        strangers = [
            url for url in self.asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))
        ]
        assert strangers == []


@pytest.fixture
def visiting(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens windows, and checks each of them in the end."""
    opened: list[Visit] = []

    def visit(**options: Any) -> Visit:
        options.setdefault("viewport", {"width": 1440, "height": 900})
        made = Visit(browser.new_context(**options))
        opened.append(made)
        return made

    yield visit
    for made in opened:
        made.context.close()
    for made in opened:
        made.check()


@pytest.fixture
def visit(visiting: Callable[..., Visit]) -> Visit:
    return visiting()


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.page


class Site:
    """`holdfast serve` in a process of its own, on a store of its own."""

    def __init__(
        self, folder: Path, *modules: str, worker: bool = True, token: str | None = None
    ) -> None:
        self.folder = folder
        self._own = {} if token is None else {"HOLDFAST_SERVER_TOKEN": token}
        self.store = folder / "store.db"
        self.port = free_port()
        self._options = [*modules, *([] if worker else ["--no-worker"])]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", *self._options]
        command += ["--port", str(self.port), "--store", str(self.store), "--json", "--quiet"]
        command += ["--grace", "0s"]
        environment = {**os.environ, "FLOWS_FOLDER": str(self.folder), **self._own}
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        assert told.get("url") == self.url, told

    def kill(self) -> None:
        """As the power does: no word to anybody."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.kill(process.pid, number)
            process.communicate(timeout=LIMIT)

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"accept": "application/json", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=LIMIT) as answer:
            return json.load(answer)

    def run(self, workflow: str, **input: Any) -> str:
        """Start a run; its id."""
        return self.ask(f"/api/workflows/{workflow}/runs", {"input": input})["id"]

    def tell(self, name: str) -> None:
        """Let what waits for this file go on."""
        (self.folder / name).touch()

    def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        return until(
            lambda: (found := self.ask(f"/api/runs/{run_id}"))["status"] in statuses and found,
            f"{run_id}: {statuses}",
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that carries out the flows."""
    made = Site(tmp_path_factory.mktemp("site"), str(HERE / "flows.py"))
    made.start()
    yield made
    made.kill()


class Demo(Site):
    """A server on the demo store, which nothing changes."""

    ids: dict[str, str]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that carries out nothing: a worker in another process does."""
    folder = tmp_path_factory.mktemp("apart")
    made = Site(folder, str(HERE / "flows.py"), worker=False)
    made.start()
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "worker", str(HERE / "flows.py")],
        env={**os.environ, "FLOWS_FOLDER": str(folder), "HOLDFAST_STORE": str(made.store)},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield made
    worker.kill()
    worker.wait()
    made.kill()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    made = Demo(tmp_path_factory.mktemp("demo"), worker=False)
    seed = Seed(made.store)
    made.ids = demo_store.fill(seed)
    seed.close()
    made.start()
    yield made
    made.kill()
    seed.let_go()
