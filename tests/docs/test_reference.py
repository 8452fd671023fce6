"""The reference knows every public name and every command."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import holdfast

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"


def test_every_public_name_has_an_entry() -> None:
    text = (REFERENCE / "runtime.md").read_text(encoding="utf-8")
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
