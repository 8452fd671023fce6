"""Write docs/reference/cli.md from the commands' own help: `python scripts/cli_reference.py`."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.main import NOUNS, build

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Made from the commands' own help by `scripts/cli_reference.py`.

- **Data** goes to stdout, everything else to stderr.
- **`--json`** on every command, failures included: `{"error": {"kind", "message", "hint"}}`.
- **`--store PATH`**, else `$HOLDFAST_STORE`, else `.holdfast/holdfast.db`.
- **Exit codes**: 0 done, 1 the run failed or was cancelled, 2 wrong usage, 3 not found or
  refused, 4 the store is out of reach, 130 detached by Ctrl-C (the run is never cancelled by it).
- **`NO_COLOR`** is respected. Progress is redrawn on a terminal only; elsewhere there is one line
  per finished step.
- **RUN** is a run's id, the beginning of it where that is unique, or `latest`.
- **JSON** values can be given in place, as `@FILE`, or as `-` for stdin.
"""


def commands() -> Iterator[argparse.ArgumentParser]:
    """Every command that does something, with its full name in `prog`."""
    todo: list[argparse.ArgumentParser] = [build(NOUNS)]
    while todo:
        parser = todo.pop(0)
        groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not groups:
            yield parser
        for group in groups:
            todo += group.choices.values()


def page() -> str:
    found = sorted(commands(), key=lambda parser: parser.prog)
    sections = [f"## `{each.prog}`\n\n```text\n{each.format_help()}```\n" for each in found]
    return "\n".join([HEAD, *sections])


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    PAGE.write_text(page(), encoding="utf-8")
