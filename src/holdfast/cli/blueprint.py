"""`holdfast blueprint`: a picture of your own project, as one page that opens anywhere."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common
from holdfast.errors import NotFound, Refused
from holdfast.store import opener

FORMATS = ("html", "svg", "mermaid", "json")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "project", nargs="?", type=Path, metavar="PROJECT",
        help="the project's folder, or the file of its app (default: this folder)",
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--advise", action="store_true",
        help="say which of loop, runtime and sandbox it uses, which it needs, and why",
    )  # fmt: skip
    what.add_argument(
        "--check", type=Path, metavar="FILE", help="fail if that picture is out of date"
    )
    what.add_argument("--out", type=Path, metavar="FILE", help="where to write it (stdout)")
    parser.add_argument(
        "--format", choices=FORMATS, metavar="FORMAT",
        help=f"{', '.join(FORMATS)} (by the end of FILE's name; html)",
    )  # fmt: skip
    parser.add_argument(
        "--no-history", action="store_true", help="only the code: lay no runs over it"
    )
    add_common(parser, _blueprint)


def _blueprint(options: argparse.Namespace) -> int:
    from holdfast.ready import doctor, project
    from holdfast.ready.blueprint_page import FORMATS as DRAWN

    root = project.find(options.project or Path.cwd())
    assert root is not None
    told = doctor.blueprint(
        root,
        app=[options.project.name] if options.project and options.project.is_file() else [],
        store=None if options.store is None else opener.absolute(options.store),
        history=not options.no_history and options.check is None,
    )
    if options.check is not None:
        return _check(options.check, told["fingerprint"])
    if options.advise:
        return _advise(told["advice"], options)
    drawn = DRAWN[_format(options)](told)
    if options.out is None:
        sys.stdout.write(drawn)
        return 0
    options.out.write_text(drawn, encoding="utf-8")
    nodes = sum(len(flow["nodes"]) for flow in told["workflows"])
    output.note(
        f"{options.out}: {len(told['workflows'])} workflows, {nodes} nodes, "
        f"{told['runs']:,} runs laid over it"
    )
    return 0


def _format(options: argparse.Namespace) -> str:
    ends = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".json": "json"}
    named = None if options.out is None else ends.get(options.out.suffix)
    return options.format or ("json" if options.json else named or "html")


def _check(file: Path, fingerprint: str) -> int:
    from holdfast.ready.blueprint_page import MARK

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"there is no picture {file}", hint="--out makes it") from error
    found = re.search(rf"{MARK}([0-9a-f]{{64}})", text)
    if found is None:
        raise Refused(f"{file} was not drawn by `holdfast blueprint`")
    if found[1] != fingerprint:
        output.note(f"{file} is out of date: `holdfast blueprint --out {file}` draws it anew")
        return 1
    output.note(f"{file} is up to date")
    return 0


def _advise(advice: dict[str, object], options: argparse.Namespace) -> int:
    from holdfast.ready.layer_advice import words

    if options.json:
        output.show_json(advice)
    else:
        for line in words(advice):
            print(output.plain(line))
    return 0
