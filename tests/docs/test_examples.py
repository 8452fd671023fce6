"""Every example in the README, the guides and the reference does what the page says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from holdfast.gateway import GatewayConfig
from waiting import LIMIT

from .blocks import blocks_of, fits

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "skills/holdfast/SKILL.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("start/*.md")),
    *sorted((ROOT / "docs").glob("questions/*.md")),
    *sorted((ROOT / "docs").glob("guides/*.md")),
    *sorted((ROOT / "docs").glob("reference/*.md")),
]
NOT_RUN = 8
"""How many blocks may be marked `no-run`: commands that install, or that never end."""


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_examples_of_a_page_work(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "NO_COLOR": "1"}
    environment.pop("HOLDFAST_STORE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "docs.run_page", str(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_few_examples_are_not_run() -> None:
    blocks = [(page.name, block) for page in PAGES for block in blocks_of(page)]
    not_run = [f"{name}:{block.line}" for name, block in blocks if not block.runs]
    assert len(not_run) <= NOT_RUN, not_run
    assert len(blocks) > 40


def test_every_page_is_there() -> None:
    guides = {page.stem for page in PAGES if page.parent.name == "guides"}
    assert guides >= {
        "getting-started",
        "workflows-and-determinism",
        "steps-and-retries",
        "waiting-for-events",
        "children-concurrency-cancellation",
        "operating",
        "testing",
    }


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("run_… is done\n", "run_123 is done  \n", True),
        ("a…c\n", "a\nc\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_is_compared_with_what_the_page_says(
    expected: str, printed: str, same: bool
) -> None:
    assert fits(expected, printed) is same


PRINTS = "It prints:\n\n"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OTHERWISE = {"demo.py", "killed_order.py", "order.py", "test_refund.py"}
"""Examples that a test of their own runs: killed_order.py runs order.py, pytest the last."""


def printed_by(example: Path) -> str | None:
    """What an example's docstring says it prints."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    _, found, after = text.partition(PRINTS)
    block = re.match(r"(?: {4}[^\n]*\n?|\n)+", after)
    return textwrap.dedent(block[0]) if found and block else None


def test_every_example_says_what_it_prints() -> None:
    silent = {each.name for each in EXAMPLES if printed_by(each) is None}
    assert silent == OTHERWISE
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)`", page)) == {each.name for each in EXAMPLES}
    assert len(EXAMPLES) >= 15


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if each.name not in OTHERWISE], ids=lambda each: each.stem
)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    expected = printed_by(example)
    assert expected is not None
    assert fits(expected, done.stdout), done.stdout


def test_the_example_of_tests_passes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_refund.py"],
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "3 passed" in done.stdout


def test_the_demo_solves_both_tasks_and_the_second_survives_being_killed(tmp_path: Path) -> None:
    demo = [sys.executable, str(ROOT / "examples" / "demo.py")]
    environment = {**os.environ, "DEMO_FOLDER": str(tmp_path / "demo")}
    done = subprocess.run(
        demo, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "passed on attempt 1 of 3" in done.stdout
    assert "$ kill -9" in done.stdout
    assert "passed on attempt 2 of 3" in done.stdout
    assert (tmp_path / "demo/lcs/test_solution.py").exists()


def test_an_order_is_fulfilled_though_its_worker_is_killed_twice(tmp_path: Path) -> None:
    killed = [sys.executable, str(ROOT / "examples" / "killed_order.py")]
    environment = {**os.environ, "DEMO_STORE": str(tmp_path / "order.db")}
    done = subprocess.run(
        killed, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("$ kill -9 ") == 2
    assert "6 steps done, 0 of them twice." in done.stdout


LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docs/llms.txt"]
    for page in pages:
        for path, _anchor in LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / path).exists(), f"{page.relative_to(ROOT)}: {path}"


TOML = re.compile(r"^```toml[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_configuration_in_pages_is_understood() -> None:
    found = [text for page in PAGES for text in TOML.findall(page.read_text(encoding="utf-8"))]
    assert found
    for text in found:
        GatewayConfig.from_dict(tomllib.loads(text).get("gateway", {}))
