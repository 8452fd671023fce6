"""The blueprint: its page from a file, without a network, and the inspector's, over recorded runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # pyright: ignore[reportMissingTypeStubs]
from playwright.sync_api import Browser, expect

from ready.examining import HEALTHY

from .conftest import Site, Visit
from .test_screens import serious

AXE: Any = Axe()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "desk"
    shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("__pycache__", ".holdfast"))
    command = [sys.executable, "-m", "holdfast.cli.main", "blueprint", "--out", "blueprint.html"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "blueprint.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_answers_from_a_file_and_axe_finds_nothing(
    browser: Browser, page_file: Path, scheme: str
):
    context = browser.new_context(color_scheme=scheme, offline=True)  # type: ignore[arg-type]
    page = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    node = page.locator('[data-id="answer/2"]')
    node.click()
    expect(page.locator("#panel")).to_contain_text("desk.py:")
    expect(page.locator("#panel")).to_contain_text("(text: str) → int")
    # By keyboard: to the next node, and what a kill there would do.
    page.locator("#kill").press("Enter")
    node.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator('[data-id="answer/3"]')).to_have_class("wait ask chosen crash-kept")
    expect(node).to_have_class("step ask crash-replayed")
    expect(page.locator("#panel")).to_contain_text("up to 2 before it are replayed")
    page.locator('.tools input[value="secret"]').uncheck()
    expect(page.locator("svg .e-secret").first).to_be_hidden()
    assert serious(AXE.run(page)) == []
    assert wrong == []
    assert asked == [page_file.as_uri()]
    context.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server of a project with recorded runs: one has ended, one waits."""
    folder = tmp_path_factory.mktemp("served") / "desk"
    shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("__pycache__", ".holdfast"))
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "ready.recording", str(folder)]
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)
    made = Site(folder, "desk.py", worker=False)
    made.store = folder / ".holdfast" / "holdfast.db"
    made.start()
    yield made
    made.kill()


def test_the_inspector_shows_the_project_its_runs_and_what_a_kill_would_do(
    desk: Site, visiting: Callable[..., Visit]
):
    visit = visiting()
    page = visit.page
    page.goto(f"{desk.url}/runs")
    page.get_by_role("navigation").get_by_role("link", name="Blueprint").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Blueprint of desk")
    expect(page.locator(".blueprint .about")).to_contain_text("2 runs laid over it")
    page.locator('[data-id="answer/3"]').click()
    expect(page.locator("#panel")).to_contain_text("customer.replied")
    assert page.url.endswith("/blueprint#answer%2F3")
    page.locator("#kill").click()
    expect(page.locator('[data-id="answer/3"]')).to_have_class("wait ask chosen crash-kept")
    page.reload()  # the address is what was chosen
    expect(page.locator('[data-id="answer/3"]')).to_have_class("wait ask chosen")
    for scheme, wide in (("light", 1440), ("dark", 1440), ("light", 360)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": wide, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        assert serious(AXE.run(page)) == []
        if shots := os.environ.get("BLUEPRINT_SHOTS"):
            page.screenshot(path=f"{shots}/blueprint-{scheme}-{wide}.png")
    link = page.locator("#panel a").first
    run_id = link.inner_text()
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("answer")
    assert page.url == f"{desk.url}/runs/{run_id}"
    told = desk.ask("/blueprint.json")
    assert told["project"] == "desk" and told["runs"] == 2


def test_without_a_project_there_is_no_such_page(demo: Site, visiting: Callable[..., Visit]):
    visit = visiting()
    visit.expected = ("404",)
    visit.page.goto(f"{demo.url}/blueprint")
    expect(visit.page.locator("main")).to_contain_text("started with no project")
    expect(visit.page.get_by_role("link", name="Blueprint")).to_have_count(0)
