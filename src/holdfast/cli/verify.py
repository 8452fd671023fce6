"""`holdfast verify`: check the evidence of a pass again, on this machine."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "folder", metavar="DIR", help="a folder that `holdfast run --evidence DIR` wrote"
    )
    add_common(parser, _verify)


def _verify(options: argparse.Namespace) -> int:
    from holdfast.agents.code import evidence  # brings the sandbox along

    found = asyncio.run(evidence.verified(Path(options.folder)))
    if options.json:
        output.show_json({"holds": not found.differs, **asdict(found)})
    else:
        for note in found.notes:
            output.note(f"  {output.plain(note)}")
        for line in found.differs:
            print(f"✗ {output.plain(line)}")
        if not found.differs and found.verdict is not None:
            words = [found.verdict.summary, found.verdict.level]
            words += [str(found.mutation)] if found.mutation is not None else []
            print(f"✓ it holds: {' · '.join(map(output.plain, words))}")
    return 1 if found.differs else 0
