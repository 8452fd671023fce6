"""`holdfast init`: begin a project from a template, or bring one up to date with its template."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common
from holdfast.errors import UsageError

DEFAULT = "durable"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="DIR",
        help="where to (default: this folder); it is made if it is not there",
    )  # fmt: skip
    parser.add_argument(
        "--template", metavar="NAME", help=f"the kind of project ({DEFAULT}); --list shows all"
    )
    parser.add_argument("--name", metavar="NAME", help="the project's name (the folder's)")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--list", action="store_true", help="list the templates")
    parser.add_argument(
        "--update", action="store_true",
        help="merge what has changed in the template into the project, and lose no line of yours",
    )  # fmt: skip
    add_common(parser, _init)


def _init(options: argparse.Namespace) -> int:
    from holdfast.ready import init_project

    if options.list:
        rows = [(name, each.summary) for name, each in init_project.TEMPLATES.items()]
        if options.json:
            output.show_json({"templates": [{"name": n, "summary": s} for n, s in rows]})
        else:
            output.table(("TEMPLATE", "WHAT"), rows)
        return 0
    folder: Path = options.folder
    if options.update:
        return _update(options, folder)
    template = options.template or _asked(options)
    name = options.name or _name(folder)
    made = init_project.create(folder, template, name)
    if options.json:
        output.show_json({"folder": str(folder), "template": template, "files": made})
        return 0
    for path in made:
        print(path)
    output.note(f"try it: {init_project.TEMPLATES[template].try_it}")
    output.note("then: pytest, and holdfast doctor")
    return 0


def _update(options: argparse.Namespace, folder: Path) -> int:
    from holdfast.ready import init_project

    done = init_project.update(folder)
    if options.json:
        output.show_json({"changed": done.changed, "conflicts": done.conflicts})
    else:
        for path in done.changed:
            print(path)
        if not done.changed:
            output.note("nothing to do")
    for path in done.conflicts:
        output.note(f"{path}: you and the template changed the same place; both stand there")
    return 1 if done.conflicts else 0


def _asked(options: argparse.Namespace) -> str:
    """The template, by asking at a terminal; elsewhere the usual one."""
    from holdfast.ready.init_project import TEMPLATES

    if options.yes or options.json or not sys.stdin.isatty():
        return DEFAULT
    for name, each in TEMPLATES.items():
        output.note(f"  {name:<15} {each.summary}")
    return input(f"template ({DEFAULT}): ").strip() or DEFAULT


def _name(folder: Path) -> str:
    """A project's name, from its folder's."""
    found = re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_0123456789")
    if not found:
        raise UsageError("the folder's name is no name for a project", hint="say --name")
    return found[:40]
