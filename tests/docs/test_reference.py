"""The reference knows every public name and every command."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import holdfast
from holdfast.runtime.definitions import Step, Workflow

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"


def test_every_public_name_has_an_entry() -> None:
    pages = [REFERENCE / name for name in ("runtime.md", "loop.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    entries = re.findall(r"^### `(\w+)", text, re.MULTILINE)
    assert sorted(entries) == sorted(holdfast.__all__)


def test_every_command_is_listed_with_all_its_options() -> None:
    commands = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))["commands"]
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    found = {parser.prog: parser for parser in commands()}
    assert sections.keys() == found.keys(), "run scripts/cli_reference.py"
    for prog, parser in found.items():
        listed = " ".join(sections[prog].split())
        for action in parser._actions:
            for word in (*action.option_strings, " ".join((action.help or "").split())):
                assert word in listed, f"{prog}: {word}: run scripts/cli_reference.py"


def test_every_parameter_is_in_its_entry() -> None:
    text = (REFERENCE / "runtime.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    for name in ("Settings", "Backoff", "Concurrency", "Failure", "open_engine", "list_runs"):
        for parameter in inspect.signature(getattr(holdfast, name)).parameters:
            assert re.search(rf"\b{parameter}\b", sections[name]), f"{name}: {parameter}"
    for decorator, made in (("workflow", Workflow), ("step", Step)):
        for parameter in list(inspect.signature(made.__init__).parameters)[2:]:
            assert re.search(rf"\b{parameter}\b", sections[decorator]), f"{decorator}: {parameter}"


def test_every_method_of_a_run_is_in_its_entry() -> None:
    text = (REFERENCE / "runtime.md").read_text(encoding="utf-8")
    for name in vars(holdfast.RunHandle):
        assert name.startswith("_") or f"{name}(" in text, name
