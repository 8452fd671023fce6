"""Build the docs site: `make docs`, or python scripts/docs_site.py FOLDER.

The pages are written to be read as they are in the repository: the project's own lie at its root,
and code blocks carry words for the tests that run them. So they are put together into one tree
first, with links moved and those words removed; Sphinx makes pages of that, and fails on whatever
leads nowhere.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = ("ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
MENU: dict[str, list[str]] = {
    "Start": [
        "start/task",
        "start/workflow",
        "start/agent",
        "start/team",
        "guides/getting-started",
    ],
    "Questions": [
        "questions/after-a-crash",
        "questions/what-does-it-cost",
        "questions/is-it-safe",
        "questions/what-if-i-change-the-code",
        "questions/where-is-my-data",
        "questions/how-does-it-compare",
    ],
    "Agents": [
        "guides/code-agent",
        "guides/repo-agent",
        "guides/batches",
        "guides/build-your-own-agent",
        "guides/tools",
        "guides/human-in-the-loop",
        "guides/alerts",
        "guides/assistants",
        "guides/which-layers",
    ],
    "Workflows": [
        "guides/workflows-and-determinism",
        "guides/steps-and-retries",
        "guides/waiting-for-events",
        "guides/schedules",
        "guides/flow-control",
        "guides/children-concurrency-cancellation",
        "guides/testing",
        "examples",
    ],
    "Models": [
        "guides/providers",
        "guides/budgets",
        "guides/gateway-http",
        "guides/testing-models",
    ],
    "Sandbox": ["guides/sandbox"],
    "Operating": [
        "guides/before-a-deploy",
        "guides/blueprint",
        "guides/configuration",
        "guides/serving",
        "guides/inspector",
        "guides/operating",
        "guides/deployment",
        "guides/many-machines",
        "guides/temporal",
        "guides/ready-for-production",
        "guides/write-your-own-store",
    ],
    "Reference": [
        "reference/runtime",
        "reference/gateway",
        "reference/sandbox",
        "reference/loop",
        "reference/http",
        "reference/cli",
        "reference/steering",
        "reference/doctor",
    ],
    "Project": [*(f"project/{Path(name).stem}" for name in PROJECT), "decisions/README"],
}
SETTINGS = {
    "project": "Holdfast",
    "html_title": "Holdfast",
    "html_theme": "furo",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "html_extra_path": ["llms.txt"],
    "html_copy_source": False,
    "html_show_sphinx": False,
    "show_copyright": False,
    # Consoles, texts with an ellipsis and the like are shown as they are where a lexer gives up.
    "suppress_warnings": ["misc.highlighting_failure"],
}
FENCE = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


def main(folder: Path) -> int:
    source = folder.with_name(folder.name + "-source")
    for each in (folder, source):
        shutil.rmtree(each, ignore_errors=True)
    gather(source)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run([*command, str(source), str(folder)], check=False).returncode


def gather(source: Path) -> None:
    """Put all pages of the site into one folder, as Sphinx reads them."""
    shutil.copytree(ROOT / "docs", source)
    for name in PROJECT:
        (source / "project").mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / "project" / name)
    for page in source.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(prepared(text, str(page.relative_to(source))), encoding="utf-8")
    with (source / "decisions/README.md").open("a", encoding="utf-8") as file:
        decisions = sorted(each.stem for each in (source / "decisions").glob("0*.md"))
        file.write(menu(None, decisions))
    with (source / "index.md").open("a", encoding="utf-8") as file:
        for title, pages in MENU.items():
            file.write(menu(title, pages, hidden=True))
    settings = "".join(f"{name} = {value!r}\n" for name, value in SETTINGS.items())
    (source / "conf.py").write_text(settings, encoding="utf-8")


def prepared(text: str, here: str) -> str:
    """A page without the words for tests, its links as they lead on the site."""
    text = FENCE.sub(r"```\1", text).replace("```output\n", "```text\n")
    return LINK.sub(lambda link: f"]({place(here, link[1])}{link[2] or ''})", text)


def place(here: str, link: str) -> str:
    """Where a link of a page leads on the site."""
    # A page of the project is written at the root, and shown in project/.
    at_root = here.startswith("project/")
    folder = "" if at_root else f"docs/{posixpath.dirname(here)}"
    target = posixpath.normpath(posixpath.join(folder, link))
    if target in PROJECT:
        target = f"docs/project/{target}"
    elif target == "docs/decisions":
        target = "docs/decisions/README.md"
    if not target.startswith("docs/"):
        return link
    return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(here) or ".")


def menu(title: str | None, pages: list[str], *, hidden: bool = False) -> str:
    options = [":hidden:"] * hidden + [f":caption: {title}"] * (title is not None)
    lines = ["", "", "```{toctree}", *options, ":maxdepth: 1", "", *pages, "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
