"""`holdfast init`: a project that begins ready, and stays up to date with its template.

Files are written into a folder where none of them is, or not at all. A record beside them keeps
what was written, so that `update` can merge three ways: what the template was, what the user made
of it, and what the template is now. No line of the user's is lost: where both changed the same
place, both stand there, marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from holdfast import __version__
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.ready.three_way_merge import merge

RECORD = ".holdfast-template.json"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

_RUNS = """      - run: holdfast runs check agent.py    # with the store of production
        if: ${{ hashFiles('.holdfast/holdfast.db') != '' }}
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of project."""

    summary: str
    command: str = "holdfast worker agent.py"
    """What runs in production."""
    project: str = ""
    """More of the `[project]` section."""
    sections: str = ""
    """More sections of `holdfast.toml`."""
    try_it: str = ""
    """What to do first."""
    files: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Its own files besides those that all have, by path; None: it does without that one."""


TEMPLATES: dict[str, Template] = {
    "durable": Template(
        "a support agent whose refunds wait for a person; tests with a crash",
        project="\n[project.examples.answer]\n"
        'ticket = { customer = "ada", text = "A-1 arrived broken" }\n',
        try_it="HOLDFAST_PROFILE=ci holdfast run agent.py:answer --input "
        """'{"ticket": {"customer": "ada", "text": "A-1 broke"}}'""",
    ),
    "loop": Template(
        "an agent with two tools, within one process",
        command="python agent.py",
        try_it="HOLDFAST_PROFILE=ci python agent.py",
    ),
    "code": Template(
        "a model writes a program, a sandbox runs it, and it is mended until it works",
        command="holdfast serve agent.py",
        project='\n[project.examples.solve]\ntask = "print 42"\n',
        try_it="""HOLDFAST_PROFILE=ci holdfast run agent.py:solve --input '{"task": "print 42"}'""",
    ),
    "repo": Template(
        "a coding agent on git repos: an issue in, a patch out that the repo's tests passed",
        try_it="pytest, then holdfast run agent.py:mend --input "
        """'{"repo": ".", "task": "…"}' with a provider's key""",
        files={"{name}.service": None, ".github/workflows/mend.yml": "repo/mend"},
    ),
    "batch": Template(
        "many tasks at once, each a run of its own, resumable",
        project='\n[project.examples.classify_all]\ntexts = ["The lamp broke", "Thank you!"]\n',
        try_it="HOLDFAST_PROFILE=ci holdfast run agent.py:classify_all --input "
        """'{"texts": ["The lamp broke"]}'""",
    ),
    "gateway": Template(
        "a team's gateway: one address, a key for each, budgets that hold",
        command="holdfast gateway serve",
        sections='\n[[gateway.budgets]]\nper = "key"\nusd = 20\nperiod = "day"\n',
        try_it="HOLDFAST_PROFILE=ci python agent.py",
    ),
    "bring-your-own": Template(
        "another framework's agent as durable steps, its calls through the gateway",
        project='\n[project.examples.research]\ntopic = "tides"\n',
        try_it="holdfast gateway serve, then holdfast run agent.py:research",
    ),
}
_KEY_BUDGET = '\n[[profiles.prod.gateway.budgets]]\nper = "key"\nusd = 20\nperiod = "day"\n'
_FILES = {
    "agent.py": "{template}/agent.py",
    "test_agent.py": "{template}/test_agent.py",
    "holdfast.toml": "common/holdfast.toml",
    ".env.example": "common/env",
    "Dockerfile": "common/Dockerfile",
    "{name}.service": "common/service",
    ".github/workflows/ready.yml": "common/ci",
}


def rendered(template: str, name: str) -> dict[str, str]:
    """The files of a project, by their paths."""
    if template not in TEMPLATES:
        raise UsageError(
            f"there is no template {template!r}", hint=f"there are {', '.join(TEMPLATES)}"
        )
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a project's name", hint="lower case letters, digits, - and _"
        )
    chosen = TEMPLATES[template]
    words = {
        "name": name,
        "command": chosen.command,
        "command_json": json.dumps(chosen.command.split()),
        "project": chosen.project,
        "sections": chosen.sections,
        "ci_checks": _RUNS.rstrip("\n") if chosen.project else "",
    }
    folder = files("holdfast.ready") / "templates"
    made: dict[str, str] = {}
    for path, source in {**_FILES, **chosen.files}.items():
        if source is None:
            continue
        text = (folder / f"{source.format(template=template)}.tmpl").read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace("{{" + word + "}}", value)
        made[path.format(name=name)] = text.rstrip("\n") + "\n"
    if template == "gateway":
        made["holdfast.toml"] += _KEY_BUDGET
    return made


def create(folder: Path, template: str, name: str) -> list[str]:
    """Write a project where none of its files is; the paths written."""
    made = rendered(template, name)
    there = [path for path in (*made, RECORD) if (folder / path).exists()]
    if there:
        raise Refused(
            f"{folder} has {', '.join(there)} already",
            hint="name an empty folder; --update brings a project of ours up to date",
        )
    for path, text in made.items():
        _write(folder / path, text)
    _record(folder, template, name, made)
    return [*made, RECORD]


@dataclass(frozen=True, slots=True)
class Updated:
    """What came of an update."""

    changed: list[str]
    conflicts: list[str]
    """Files in which both sides stand, marked."""


def update(folder: Path, now: Mapping[str, str] | None = None) -> Updated:
    """Bring a project up to date with its template as it is in this version.

    `now`: the files as the template makes them today; a test hands in others.
    """
    file = folder / RECORD
    if not file.exists():
        raise NotFound(f"{folder} has no {RECORD}", hint="holdfast init makes a project")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        base: dict[str, str] = record["files"]
        template, name = str(record["template"]), str(record["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{file} can't be read: {error}") from error
    theirs = dict(now) if now is not None else rendered(template, name)
    changed: list[str] = []
    conflicts: list[str] = []
    for path, text in theirs.items():
        target = folder / path
        if not target.exists():
            if path not in base:
                _write(target, text)
                changed.append(path)
            continue  # the user took it out: so it stays
        mine = target.read_text(encoding="utf-8")
        merged, clash = merge(base.get(path, ""), mine, text)
        if merged != mine:
            _write(target, merged)
            changed.append(path)
        if clash:
            conflicts.append(path)
    _record(folder, template, name, theirs)
    return Updated(changed, conflicts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _record(folder: Path, template: str, name: str, made: Mapping[str, str]) -> None:
    record = {"template": template, "name": name, "version": __version__, "files": dict(made)}
    _write(folder / RECORD, json.dumps(record, indent=1) + "\n")
