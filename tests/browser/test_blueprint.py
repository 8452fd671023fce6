"""The blueprint's page, from a file, in a browser without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from ready.examining import HEALTHY

from .test_screens import serious


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
    assert serious(Axe().run(page)) == []
    assert wrong == []
    assert asked == [page_file.as_uri()]
    context.close()
