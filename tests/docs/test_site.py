"""The docs site is built from the same pages, and every link and anchor in it leads somewhere."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from waiting import LIMIT

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ("index.md", "start", "questions", "guides", "reference", "examples.md")


class Page(HTMLParser):
    """The links and anchors of a page, and what it would fetch by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if "id" in named:
            self.anchors.add(named["id"])
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag in {"img", "script", "iframe"} and "src" in named:
            self.fetched.append(named["src"])
        if tag == "link" and named.get("rel") in {"stylesheet", "icon", "preconnect"}:
            self.fetched.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Built once for all workers of a run: the first to come builds, the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    built = folder / "docs-site"
    with (folder / "docs-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            making = folder / "docs-site-unfinished"
            shutil.rmtree(making, ignore_errors=True)
            done = subprocess.run(
                [sys.executable, str(ROOT / "scripts/docs_site.py"), str(making)],
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            making.rename(built)
    return {page: Page(page.read_text(encoding="utf-8")) for page in built.rglob("*.html")}


def test_every_page_of_the_docs_is_in_the_site(site: dict[Path, Page]) -> None:
    built = {page.with_suffix("").name for page in site}
    written = {page.stem for page in (ROOT / "docs").rglob("*.md") if page.stem != "README"}
    assert written <= built
    assert {"ARCHITECTURE", "SECURITY", "CONTRIBUTING", "CHANGELOG"} <= built


def test_links_and_anchors_of_the_site_lead_somewhere(site: dict[Path, Page]) -> None:
    broken: list[str] = []
    for page, found in site.items():
        for link in found.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, anchor = urldefrag(link)
            target = (page.parent / unquote(path)).resolve() if path else page
            if target in site:
                if anchor and unquote(anchor) not in site[target].anchors:
                    broken.append(f"{page.name}: {link}")
            elif not target.is_file():
                broken.append(f"{page.name}: {link}")
    assert not broken


def test_the_site_fetches_nothing_from_elsewhere(site: dict[Path, Page]) -> None:
    foreign = [each for page in site.values() for each in page.fetched if "//" in each]
    assert not foreign


def test_examples_are_shown_as_code_without_the_words_for_tests(site: dict[Path, Page]) -> None:
    for page in site:
        text = page.read_text(encoding="utf-8")
        assert "```" not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL), page.name


def test_llms_txt_names_every_page(site: dict[Path, Page]) -> None:
    text = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(([^)]+)\)", text))
    pages = {
        str(page.relative_to(ROOT / "docs"))
        for name in SHIPPED
        for page in [ROOT / "docs" / name, *(ROOT / "docs" / name).glob("*.md")]
        if page.is_file() and page.name != "index.md"
    }
    assert named == pages
