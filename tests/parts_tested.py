"""Which parts this run of the suite tested: sandbox backends, browser, interpreters, databases, local model.

A machine that lacks one passes the suite all the same, with tests skipped; the closing summary says
so in a line per part, so that nobody takes half of it for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

PARTS = {
    "sandbox: namespace": re.compile(r"\[(.*-)?namespace(-.*)?\]"),
    "sandbox: gvisor": re.compile(r"\[(.*-)?gvisor(-.*)?\]"),
    "browser": re.compile(r"^tests/browser/"),
    "python 3.11": re.compile(r"^tests/test_interpreters\.py::.*\[3\.11\]"),
    "python 3.12": re.compile(r"^tests/test_interpreters\.py::.*\[3\.12\]"),
    "python 3.13": re.compile(r"^tests/test_interpreters\.py::.*\[3\.13\]"),
    "postgres": re.compile(r"^tests/.*(::TestPostgres|/test_postgres_|\[(.*-)?postgres(-.*)?\])"),
    "temporal": re.compile(r"^tests/temporal/|\[(.*-)?temporal(-.*)?\]"),
    "local model": re.compile(r"^tests/(gateway/test_local|agents/code/test_local_model)\.py"),
}


def _reason(report: Any) -> str:
    """A skipped test's longrepr is (file, line, "Skipped: why")."""
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")


def told(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """A line for each part that was asked for, of pytest's reports by outcome."""
    lines: list[str] = []
    for part, pattern in PARTS.items():
        found = {
            outcome: [each for each in stats.get(outcome, ()) if pattern.search(each.nodeid)]
            for outcome in ("passed", "failed", "skipped")
        }
        ran = len({each.nodeid for each in (*found["passed"], *found["failed"])})
        if ran:
            lines.append(f"{part}: {ran} tests ran")
        elif found["skipped"]:
            lines.append(f"{part}: NOT TESTED here: {_reason(found['skipped'][0])}")
    return lines
