"""`holdfast doctor`: is this installation fit to work, and how is the store?"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import asdict, dataclass

from holdfast import __version__, config
from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.options import add_common, store_path
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


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common(parser, _doctor)


def _doctor(options: argparse.Namespace) -> int:
    health = opener.examine(store_path(options))
    checks = [*_installation(), _configuration(), *_store(health)]
    well = all(check.ok for check in checks)
    if options.json:
        shown = [{**asdict(c), "hint": None if c.ok else c.hint} for c in checks]
        output.show_json({"ok": well, "checks": shown, "store": health.as_json()})
    else:
        for check in checks:
            print(f"{'✓' if check.ok else '✗'} {check.name:<9} {output.plain(check.found)}")
            if check.hint and not check.ok:
                output.note(f"  hint: {check.hint}")
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
    ]
