"""The closing summary names what was tested, and what only seems so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from parts_tested import told


def report(nodeid: str, why: str = "") -> Any:
    return SimpleNamespace(nodeid=nodeid, longrepr=("file.py", 1, f"Skipped: {why}"))


def test_a_part_that_ran_is_counted_and_one_that_was_skipped_is_said_with_its_reason() -> None:
    stats = {
        "passed": [report("tests/sandbox/test_a.py::test_a[namespace]")],
        "failed": [report("tests/sandbox/test_a.py::test_b[node-namespace]")],
        "skipped": [report("tests/sandbox/test_a.py::test_a[gvisor]", "no runsc")],
    }
    assert told(stats) == [
        "sandbox: namespace: 2 tests ran",
        "sandbox: gvisor: NOT TESTED here: no runsc",
    ]


def test_one_skipped_test_of_a_part_that_ran_is_no_untested_part() -> None:
    stats = {
        "passed": [report("tests/browser/test_screens.py::test_a[runs]")],
        "skipped": [report("tests/browser/test_live.py::test_b", "not today")],
    }
    assert told(stats) == ["browser: 1 tests ran"]


def test_what_nobody_asked_for_is_not_mentioned() -> None:
    assert told({"passed": [report("tests/test_ids.py::test_ids")]}) == []
