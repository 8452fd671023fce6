"""Long tests begin first and are shared out; slow ones are known; what was measured is kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import durations


def loads(order: list[int], ids: list[str], known: dict[str, float], workers: int) -> list[float]:
    """Seconds of each worker's first part, cut as xdist cuts it."""
    found: list[float] = []
    rest = list(order)
    for n in range(workers):
        size = len(rest) // (workers - n)
        part, rest = rest[:size], rest[size:]
        found.append(sum(known.get(durations.function_of(ids[p]), 0.0) for p in part))
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tests", [1, 5, 400, 401])
def test_each_test_is_dealt_once_and_the_parts_take_equally_long(tests: int, workers: int) -> None:
    ids = [f"tests/test_{n // 20}.py::test_{n}" for n in range(tests)]
    known = {durations.function_of(id): 100.0 / (n + 1) for n, id in enumerate(ids)}
    order = durations.dealt(ids, known, workers)
    assert sorted(order) == list(range(tests))
    if tests > 100:
        longest = max(known.values())
        fair = sum(known.values()) / workers
        assert max(loads(order, ids, known, workers)) <= max(longest, fair) * 1.2


def test_a_part_begins_with_its_long_tests_and_keeps_files_together() -> None:
    ids = [f"tests/test_{file}.py::test_x[{n}]" for n in range(30) for file in "abcd"]
    known = {"tests/test_c.py::test_x": 2.0, "tests/test_d.py::test_x": 0.1}
    order = durations.dealt(ids, known, 2)
    files = [ids[place].partition("::")[0] for place in order]
    for part in (files[:60], files[60:]):
        assert part[0] == "tests/test_c.py", "the long file is shared, and comes first"
        changes = sum(a != b for a, b in pairwise(part))
        assert changes == len(set(part)) - 1, "a file is left and come back to"


def test_a_slow_test_is_one_that_was_measured_so_and_a_new_one_is_fast() -> None:
    known = {"tests/test_a.py::test_long": 5.0, "tests/test_a.py::test_short": 0.1}
    assert durations.is_slow("tests/test_a.py::test_long[case-1]", known)
    assert not durations.is_slow("tests/test_a.py::test_short", known)
    assert not durations.is_slow("tests/test_a.py::test_new", known)


def test_what_is_measured_replaces_what_was_known_and_the_rest_stays() -> None:
    known = {"tests/a.py::test_kept": 1.0, "tests/a.py::test_now_short": 3.0}
    ran = {
        "tests/a.py::test_now_short": 0.001,
        "tests/a.py::test_b[1]": 1.0,
        "tests/a.py::test_b[2]": 2.0,
    }
    assert durations.read(durations.written(known, ran)) == {
        "tests/a.py::test_kept": 1.0,
        "tests/a.py::test_b": 1.5,
    }


def test_what_was_measured_as_slow_is_marked_so() -> None:
    root, path = Path(__file__).parents[1], "tests/loop/test_mcp.py"
    slow = {name for name in durations.read(durations.FILE.read_text()) if name.startswith(path)}
    assert slow, "void: nothing of this file was recorded"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n",
        "0",
        "-m",
        "slow",
        path,
    ]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=root, env=own, capture_output=True, text=True, check=True)
    found = {durations.function_of(line) for line in done.stdout.splitlines() if "::" in line}
    known = durations.read(durations.FILE.read_text())
    assert found == {name for name in slow if known[name] > durations.FAST}


def test_make_test_leaves_nothing_out() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    (recipe,) = re.findall(r"^test:.*\n\t(.*)$", makefile, re.MULTILINE)
    (pytest_command,) = re.findall(r"^PYTEST := (.*)$", makefile, re.MULTILINE)
    assert recipe == "@$(PYTEST) $(addprefix --ignore=,$(PASSED))"
    assert pytest_command == "$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q"
    # Only CI says what has passed already, and only what the fresh machine has just run.
    assert not re.search(r"^\s*(export )?PASSED", makefile, re.MULTILINE)
    ci = (Path(__file__).parents[1] / ".ci" / "run").read_text()
    assert "scripts/fresh.sh 'make demo && make test-browser' || code=$?\npassed=\n" in ci
    assert re.findall(r"passed=\S+", ci) == ["passed=tests/browser"]
    assert "  0) passed=tests/browser ;;\n" in ci
