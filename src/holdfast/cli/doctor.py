"""`holdfast doctor`: is this installation fit to work, and how is the store?

In a project, or with one named, it looks at the project instead: the 28 points of
`holdfast.ready.points`.
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import __version__, config
from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.options import add_common, store_name
from holdfast.errors import ConfigError, StoreError
from holdfast.store import opener
from holdfast.store.health import Health


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    found: str
    hint: str | None = None
    warns: bool = False
    """It is fit to work all the same."""

    @property
    def advice(self) -> str | None:
        return None if self.ok and not self.warns else self.hint

    @property
    def mark(self) -> str:
        return "✗" if not self.ok else "!" if self.warns else "✓"


FORMATS = ("text", "json", "sarif", "junit", "md")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "project", nargs="?", type=Path, metavar="PROJECT",
        help="the project's folder, or the file of its app (default: this folder, if its "
        "holdfast.toml has a [project])",
    )  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--static", action="store_true", help="only code and configuration; carry nothing out"
    )
    how.add_argument(
        "--drill", action="store_true",
        help="also drills on a throw-away store: crashes, hangs, races, a canary in a sandbox",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", default=[], metavar="ID", help="only this point; repeatable"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="the profile to look at (default: prod, if there is one)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", metavar="FORMAT", help=", ".join(FORMATS)
    )
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument(
        "--baseline", type=Path, metavar="FILE", help="what it lists is known, and no failure"
    )
    baseline.add_argument(
        "--write-baseline", type=Path, metavar="FILE", help="list what fails now as known"
    )
    add_common(parser, _doctor)


def _doctor(options: argparse.Namespace) -> int:
    from holdfast.ready import project

    root = project.find(options.project) if options.project or config.given() else None
    return _installed(options) if root is None else _ready(options, root)


def _ready(options: argparse.Namespace, root: Path) -> int:
    from holdfast.ready import doctor, report_formats

    app = [options.project.name] if options.project and options.project.is_file() else []
    report = doctor.examine(
        root,
        tiers="S" if options.static else "SRD" if options.drill else "SR",
        only=options.only,
        profile=options.profile,
        app=app,
        baseline=doctor.read_baseline(options.baseline) if options.baseline else frozenset(),
        store=None if options.store is None else opener.absolute(options.store),
    )
    named = "json" if options.json else options.format
    if options.write_baseline is not None:
        number = doctor.write_baseline(options.write_baseline, report)
        output.note(f"{options.write_baseline}: {number} findings are known from now on")
        return 0
    if named in report_formats.DATA:
        output.show_json(report_formats.DATA[named](report))
    else:
        for line in report_formats.TEXTS[named](report).splitlines():
            print(output.plain(line))
    return 0 if report.ok else 1


def _installed(options: argparse.Namespace) -> int:
    health = opener.examine(store_name(options))
    checks = [*_installation(), _configuration(), *_store(health)]
    well = all(check.ok for check in checks)
    if options.json:
        shown = [{**asdict(c), "hint": c.advice} for c in checks]
        output.show_json({"ok": well, "checks": shown, "store": health.as_json()})
    else:
        for check in checks:
            print(f"{check.mark} {check.name:<9} {output.plain(check.found)}")
            if check.advice:
                output.note(f"  hint: {check.advice}")
    return 0 if well else StoreError.exit_code


def _installation() -> list[Check]:
    python = f"{platform.python_version()} ({sys.executable})"
    software, version, enough = opener.software()
    return [
        Check("holdfast", True, __version__),
        Check("python", True, python),
        Check(software, enough, version, f"Holdfast needs a newer {software}: see the README"),
    ]


def _configuration() -> Check:
    try:
        check_configuration()
    except ConfigError as error:
        return Check("config", False, error.message, error.hint)
    profile = config.read()["profile"]
    return Check("config", True, f"profile {profile}" if config.given() else "none")


def _store(health: Health) -> list[Check]:
    writable = Check(
        "writable",
        health.writable,
        "yes" if health.writable else "no",
        "check the owner and mode of the file and its folder",
    )
    if not health.exists:
        return [Check("store", True, f"{health.path} (not made yet)"), writable]
    if health.problem is not None:
        found = Check("store", False, health.problem.message, health.problem.hint)
        return [found, writable]
    version = health.schema_version or 0
    by_status = ", ".join(f"{count} {status}" for status, count in health.runs.items())
    return [
        Check("store", True, f"{health.path} ({health.bytes:,} bytes)"),
        writable,
        Check(
            "schema",
            version <= health.known_schema,
            f"{version} (this program knows up to {health.known_schema})",
            "the store was written by a newer Holdfast: upgrade this one",
        ),
        Check("workers", True, f"{len(health.workers)} alive"),
        Check("runs", True, by_status or "none"),
        *(Check("concern", True, found, hint, warns=True) for found, hint in health.concerns),
    ]
